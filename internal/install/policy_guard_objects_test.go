// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// message is an object of Hanse's with the metadata, one field per line of YAML.
func message(t *testing.T, kind, metadata string) *unstructured.Unstructured {
	t.Helper()
	return read(t, "apiVersion: hanse.dev/v1alpha1\nkind: "+kind+"\nmetadata:"+
		indent("namespace: hanse-peer-turin\nname: shop\n"+metadata))
}

func TestMetadataOfPeersIsGuarded(t *testing.T) {
	record := func(metadata string) review { return review{by: peer, object: message(t, "ShadowPod", metadata)} }
	changed := func(before, after string) review {
		return review{by: peer, old: message(t, "ShadowPod", before), object: message(t, "ShadowPod", after)}
	}
	const (
		owner    = "ownerReferences: [{apiVersion: v1, kind: Namespace, name: kube-system, uid: u}]"
		byThem   = "labels: {hanse.dev/peer: turin, app.kubernetes.io/name: x}\nannotations: {kubernetes.io/note: x}"
		copied   = "labels: {hanse.dev/peer: turin, hanse.dev/cluster-id: turin}"
		deep     = `managedFields: [{manager: x, fieldsV1: {"f:status": {"f:conditions": {"k:Ready": {".": {}, "f:type": {"f:more": {}}}}}}}]`
		invented = "labels: {hanse.dev/peer: milan, app.kubernetes.io/name: x}\nannotations: {kubernetes.io/note: x}"
	)
	long := "annotations: {a: " + strings.Repeat("a", 8<<10) + "}"
	through := func(path ...string) *unstructured.Unstructured {
		shadow := message(t, "ShadowPod", "")
		if err := unstructured.SetNestedStringSlice(shadow.Object, path, "spec", "path"); err != nil {
			t.Fatal(err)
		}
		return shadow
	}
	of := func(uid string) *unstructured.Unstructured {
		shadow := message(t, "ShadowPod", "")
		if err := unstructured.SetNestedField(shadow.Object, uid, "spec", "homeUID"); err != nil {
			t.Fatal(err)
		}
		return shadow
	}
	asking := func(onward string) *unstructured.Unstructured {
		shadow := message(t, "ShadowPod", "")
		if err := unstructured.SetNestedField(shadow.Object, onward, "spec", "onward"); err != nil {
			t.Fatal(err)
		}
		return shadow
	}
	quoting := func(amount string) *unstructured.Unstructured {
		quote := message(t, "Quote", "")
		component := map[string]any{"name": "web", "replicas": int64(1), "resources": map[string]any{"cpu": amount}}
		if err := unstructured.SetNestedSlice(quote.Object, []any{component}, "spec", "components"); err != nil {
			t.Fatal(err)
		}
		return quote
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), map[string]decision{
		"a quote":                              {review: review{by: peer, object: quoting("500m")}},
		"a quote for nothing":                  {review: review{by: peer, object: quoting("0")}, want: "spec.components.resources"},
		"a quote for less":                     {review: review{by: peer, object: quoting("-1")}, want: "spec.components.resources"},
		"a quote that takes hours":             {review: review{by: peer, object: quoting("1e999999999")}, want: "spec.components.resources"},
		"what is asked of others":              {review: review{by: peer, object: asking("[]")}},
		"what is asked of others, as before":   {review: review{by: peer, old: asking("[]"), object: asking("[]")}},
		"what is asked of others, no more":     {review: review{by: peer, old: asking("[]"), object: message(t, "ShadowPod", "")}, want: "spec.onward"},
		"what is asked of others, differently": {review: review{by: peer, old: asking("[]"), object: asking("[{}]")}, want: "spec.onward"},
		"a Connection":                         {review: review{by: peer, object: message(t, "Connection", "")}, want: "Connections"},
		"a record of a pod":                    {review: review{by: peer, object: of("u-1")}},
		"a record of the same pod":             {review: review{by: peer, old: of("u-1"), object: of("u-1")}},
		"a record that gets another pod":       {review: review{by: peer, old: of("u-1"), object: of("u-2")}, want: "spec.homeUID"},
		"a record that is left by its pod":     {review: review{by: peer, old: of("u-1"), object: message(t, "ShadowPod", "")}, want: "spec.homeUID"},
		"a path":                               {review: review{by: peer, object: through("turin")}},
		"a path that stays":                    {review: review{by: peer, old: through("turin"), object: through("turin")}},
		"a path that changes":                  {review: review{by: peer, old: through("turin"), object: through("milan")}, want: "spec.path"},
		"a path that is left":                  {review: review{by: peer, old: through("turin"), object: message(t, "ShadowPod", "")}, want: "spec.path"},
		"a path, later":                        {review: review{by: peer, old: message(t, "ShadowPod", ""), object: through("turin")}, want: "spec.path"},
		"other kinds have none":                {review: review{by: peer, old: message(t, "NamespaceMapping", ""), object: message(t, "NamespaceMapping", "")}},
		"what hanse kubelet writes": {
			review: record("annotations: {hanse.dev/home-revision: abc, hanse.dev/report-end: \"true\"}\nfinalizers: [hanse.dev/shadow-pod]\nlabels: {app: web}"),
		},
		"what it takes off when it knows the end": {
			review: changed(
				"annotations: {hanse.dev/home-revision: abc, hanse.dev/report-end: \"true\"}\ndeletionTimestamp: \"2026-01-01T00:00:00Z\"\nfinalizers: [hanse.dev/shadow-pod]",
				"annotations: {hanse.dev/home-revision: abc}\ndeletionTimestamp: \"2026-01-01T00:00:00Z\"\nfinalizers: [hanse.dev/shadow-pod]"),
		},
		"the context of a trace": {
			review: record("annotations: {hanse.dev/traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01}"),
		},
		"something else instead": {
			review: record("annotations: {hanse.dev/traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more}"),
			want:   "metadata.annotations",
		},
		"an owner":                  {review: record(owner), want: "metadata.ownerReferences"},
		"an owner that is there":    {review: changed(owner, owner)},
		"an owner, later":           {review: changed("", owner), want: "metadata.ownerReferences"},
		"a finalizer":               {review: record("finalizers: [example.com/mine]"), want: "metadata.finalizers"},
		"one of another kind":       {review: record("finalizers: [hanse.dev/namespace-mapping]"), want: "metadata.finalizers"},
		"a finalizer that is there": {review: changed("finalizers: [example.com/mine]", "finalizers: [example.com/mine]")},
		"a finalizer, later":        {review: changed("", "finalizers: [example.com/mine]"), want: "metadata.finalizers"},
		"a mapping that stays for ever": {
			review: review{by: peer, object: message(t, "NamespaceMapping", "finalizers: [hanse.dev/shadow-pod]")},
			want:   "metadata.finalizers",
		},
		"a label of ours":             {review: record("labels: {hanse.dev/peer: milan}"), want: "metadata.labels"},
		"a label of Kubernetes":       {review: record("labels: {app.kubernetes.io/name: x}"), want: "metadata.labels"},
		"a label of its subprojects":  {review: record("labels: {x-k8s.io/name: x}")},
		"a label of k8s.io":           {review: record("labels: {node.k8s.io/name: x}"), want: "metadata.labels"},
		"a label that only looks so":  {review: record("labels: {nothanse.dev/peer: x, hanse.dev: x}")},
		"labels that others put on":   {review: changed(byThem, byThem)},
		"labels that others changed":  {review: changed(byThem, invented), want: "metadata.labels"},
		"an annotation of ours":       {review: record("annotations: {hanse.dev/expires: never}"), want: "metadata.annotations"},
		"an annotation of kubectl":    {review: record("annotations: {kubectl.kubernetes.io/x: x}"), want: "metadata.annotations"},
		"a claim":                     {review: review{by: peer, object: message(t, "PeeringClaim", "finalizers: [a/b]")}, want: "metadata.finalizers"},
		"by an invitation":            {review: review{by: "system:serviceaccount:hanse-peer-turin:hanse-invitation", object: message(t, "PeeringClaim", owner)}, want: "metadata.ownerReferences"},
		"the answer to an offer":      {review: review{by: peer, of: "advertisements/status", old: message(t, "Advertisement", owner), object: message(t, "Advertisement", owner)}},
		"a finalizer with the answer": {review: review{by: peer, of: "advertisements/status", old: message(t, "Advertisement", ""), object: message(t, "Advertisement", "finalizers: [a/b]")}, want: "metadata.finalizers"},
		"long annotations":            {review: record("annotations: {a: " + strings.Repeat("a", 8<<10) + "}"), want: "metadata: "},
		"long annotations, later":     {review: changed("", "annotations: {a: "+strings.Repeat("é", 4<<10)+"}"), want: "metadata: "},
		"many labels":                 {review: review{by: peer, object: message(t, "NamespaceMapping", "labels: {a: "+strings.Repeat("a", 8<<10)+"}")}, want: "metadata: "},
		"long notes of an offer":      {review: review{by: peer, of: "advertisements/status", old: message(t, "Advertisement", long), object: message(t, "Advertisement", long)}},
		"an invented account":         {review: review{by: peer, object: noted(t, "NamespaceMapping", 8<<10)}, want: "metadata: "},
		"an invented deep account":    {review: review{by: peer, object: message(t, "NamespaceMapping", deep)}, want: "metadata: "},
		"an account of our answer":    {review: review{by: peer, old: message(t, "PeeringClaim", deep), object: message(t, "PeeringClaim", deep)}},
		"the answer to its own offer": {review: review{by: peer, of: "advertisements/status", old: message(t, "Advertisement", copied), object: message(t, "Advertisement", copied)}, want: "status: a peer answers"},
		"by an administrator":         {review: review{by: admin, object: message(t, "ShadowPod", owner+"\n"+invented)}},
		"by the manager":              {review: review{by: manager, object: message(t, "Advertisement", owner+"\n"+byThem)}},
	})
}

func TestPeersLeaveNoOrphans(t *testing.T) {
	deletes := func(by string, options *metav1.DeleteOptions) review {
		return review{by: by, old: message(t, "ShadowPod", ""), options: options}
	}
	policy := func(p metav1.DeletionPropagation) *metav1.DeleteOptions {
		return &metav1.DeleteOptions{PropagationPolicy: &p}
	}
	yes := true
	old := &metav1.DeleteOptions{OrphanDependents: &yes} //nolint:staticcheck // deprecated, but API servers take it still
	expectDecisions(t, validatingPolicy(t, "hanse-guard-deletions"), map[string]decision{
		"as hanse kubelet does":  {review: deletes(peer, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}})},
		"after its pod":          {review: deletes(peer, policy(metav1.DeletePropagationForeground))},
		"and leaves the pod":     {review: deletes(peer, policy(metav1.DeletePropagationOrphan)), want: "propagationPolicy"},
		"in the old way of it":   {review: deletes(peer, old), want: "propagationPolicy"},
		"an administrator knows": {review: deletes(admin, policy(metav1.DeletePropagationOrphan))},
	})
}

var inTenant = map[string]string{
	v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: "turin", v1alpha1.LabelManaged: "true",
}
