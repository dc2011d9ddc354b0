// SPDX-License-Identifier: Apache-2.0

package install

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const enforce = "pod-security.kubernetes.io/enforce"

// space is a namespace with the labels, and more of them as pairs; an empty one is taken off.
func space(name string, labels map[string]string, more ...string) *corev1.Namespace {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for i := 0; i < len(more); i += 2 {
		labels[more[i]] = more[i+1]
		if more[i+1] == "" {
			delete(labels, more[i])
		}
	}
	return withKind(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
	}, "", "v1", "Namespace")
}

func annotated(namespace *corev1.Namespace, key, value string) *corev1.Namespace {
	namespace.Annotations = map[string]string{key: value}
	return namespace
}

func TestNamespacesOfPeersAreGuarded(t *testing.T) {
	const (
		ours   = "metadata.labels: those of hanse.dev"
		levels = "metadata.labels: those of pod-security.kubernetes.io"
		notes  = "metadata.annotations: those of hanse.dev"
		name   = "shop-turin-abcdef"
	)
	makes := func(by string, after *corev1.Namespace) review { return review{by: by, object: after} }
	changes := func(by string, before, after *corev1.Namespace) review {
		return review{by: by, old: before, object: after}
	}
	secure := maps.Clone(inTwin)
	secure[enforce] = "baseline"
	expectDecisions(t, validatingPolicy(t, "hanse-guard-namespaces"), map[string]decision{
		"users make namespaces":              {review: makes(admin, space("shop", nil, enforce, "privileged"))},
		"and change them":                    {review: changes(admin, space("shop", inShop, enforce, "baseline"), space("shop", inShop, enforce, "privileged"))},
		"Hanse makes a twin":                 {review: makes(manager, space(name, secure))},
		"Hanse changes it":                   {review: changes(manager, space(name, secure), space(name, secure, enforce, "restricted"))},
		"an administrator deletes it":        {review: review{by: admin, old: space(name, secure)}},
		"an administrator notes on it":       {review: changes(admin, space(name, secure), annotated(space(name, secure, "team", "x"), "note", "x"))},
		"an administrator makes no twin":     {review: makes(admin, space(name, secure)), want: ours},
		"nor of a namespace":                 {review: changes(admin, space("shop", nil), space("shop", nil, v1alpha1.LabelType, v1alpha1.TypeTwin)), want: ours},
		"a twin stays one":                   {review: changes(admin, space(name, secure), space(name, secure, v1alpha1.LabelType, "")), want: ours},
		"of the same peer":                   {review: changes(admin, space(name, secure), space(name, secure, v1alpha1.LabelPeer, "milan")), want: ours},
		"as secure":                          {review: changes(admin, space(name, secure), space(name, secure, enforce, "privileged")), want: levels},
		"and not less by taking it off":      {review: changes(admin, space(name, secure), space(name, secure, enforce, "")), want: levels},
		"nor by an exemption":                {review: changes(admin, space(name, secure), space(name, secure, enforce+"-version", "v1.20")), want: levels},
		"nor by way of the status":           {review: review{by: admin, of: "namespaces/status", old: space(name, secure), object: space(name, secure, enforce, "privileged")}, want: levels},
		"nor by hanse kubelet":               {review: changes(kubelet, space(name, secure), space(name, secure, enforce, "privileged")), want: levels},
		"for the same namespace at home":     {review: changes(admin, annotated(space(name, secure), v1alpha1.AnnotationHomeNamespace, "shop"), annotated(space(name, secure), v1alpha1.AnnotationHomeNamespace, "bank")), want: notes},
		"the namespace controller ends it":   {review: review{by: "system:serviceaccount:kube-system:namespace-controller", of: "namespaces/finalize", old: space(name, secure), object: space(name, secure)}},
		"a tenant namespace made beforehand": {review: makes(admin, space("hanse-peer-turin", inTenant, enforce, "restricted"))},
		"a tenant namespace applied again":   {review: changes(admin, space("hanse-peer-turin", inTenant), space("hanse-peer-turin", inTenant))},
		"a tenant namespace of another name": {review: makes(admin, space("kube-public", inTenant)), want: ours},
		"a tenant namespace made of another": {review: changes(admin, space("hanse-peer-turin", nil), space("hanse-peer-turin", inTenant)), want: ours},
		"a tombstone made by hand":           {review: makes(admin, space("hanse-peer-turin", inTenant, v1alpha1.LabelType, v1alpha1.TypeTombstone)), want: ours},
		"a mark set by hand":                 {review: changes(admin, space("shop", nil), space("shop", nil, v1alpha1.LabelOffloads, "true")), want: ours},
		"a mark taken off by hand":           {review: changes(admin, space("shop", nil, v1alpha1.LabelOffloads, "true"), space("shop", nil)), want: ours},
		"a namespace opened to Hanse":        {review: changes(admin, space("kube-system", nil), space("kube-system", nil, v1alpha1.LabelManaged, "true")), want: ours},
		"a marked namespace is its user's":   {review: changes(admin, space("shop", nil, v1alpha1.LabelOffloads, "true"), space("shop", nil, v1alpha1.LabelOffloads, "true", enforce, "baseline"))},
	})
}

func TestHanseChangesNamespacesOfPeersAlone(t *testing.T) {
	const (
		refused = "metadata.labels: Hanse makes, changes and deletes"
		level   = "metadata.labels: pod-security.kubernetes.io/enforce"
		name    = "shop-turin-abcdef"
	)
	makes := func(after *corev1.Namespace) review { return review{by: manager, object: after} }
	changes := func(before, after *corev1.Namespace) review {
		return review{by: manager, old: before, object: after}
	}
	deletes := func(before *corev1.Namespace) review { return review{by: manager, old: before} }
	secure := maps.Clone(inTwin)
	secure[enforce] = "baseline"
	released := space("shop", inShop)
	released.Spec.Finalizers = nil
	marked := func(more ...string) *corev1.Namespace {
		return space("shop", inShop, append([]string{v1alpha1.LabelOffloads, "true"}, more...)...)
	}
	expectDecisions(t, validatingPolicy(t, "hanse-own-namespaces"), map[string]decision{
		"a tenant namespace":          {review: makes(space("hanse-peer-turin", inTenant))},
		"a twin":                      {review: makes(space(name, secure))},
		"a twin that is restricted":   {review: changes(space(name, secure), space(name, secure, enforce, "restricted"))},
		"a twin that is not secured":  {review: makes(space(name, inTwin)), want: level},
		"a twin that is laid open":    {review: changes(space(name, secure), space(name, secure, enforce, "privileged")), want: level},
		"the end of a twin":           {review: deletes(space(name, secure))},
		"a tombstone":                 {review: changes(space("hanse-peer-turin", inTenant), space("hanse-peer-turin", inTenant, v1alpha1.LabelType, v1alpha1.TypeTombstone))},
		"the end of a tombstone":      {review: deletes(space("hanse-peer-turin", inTenant, v1alpha1.LabelType, v1alpha1.TypeTombstone))},
		"a tenant of another name":    {review: makes(space("turin", inTenant)), want: refused},
		"a namespace of users":        {review: makes(space("shop", inShop)), want: refused},
		"the end of one":              {review: deletes(space("shop", inShop)), want: refused},
		"the end of a marked one":     {review: deletes(marked()), want: refused},
		"the end of the system's":     {review: deletes(space("kube-system", nil)), want: refused},
		"the end of Hanse's own":      {review: deletes(space("hanse-system", nil)), want: refused},
		"a mark":                      {review: changes(space("shop", inShop), marked())},
		"a mark taken off":            {review: changes(marked(), space("shop", inShop))},
		"a mark and more":             {review: changes(space("shop", inShop), marked("team", "x")), want: refused},
		"a mark and less":             {review: changes(space("shop", inShop), marked("team", "")), want: refused},
		"a mark and a note":           {review: changes(space("shop", inShop), annotated(marked(), "a", "b")), want: refused},
		"a mark and no finalizer":     {review: changes(space("shop", inShop), released), want: refused},
		"a twin made of a namespace":  {review: changes(space("shop", inShop), space("shop", secure)), want: refused},
		"the system opened to itself": {review: changes(space("kube-system", nil), space("kube-system", nil, v1alpha1.LabelManaged, "true")), want: refused},
		"by way of the status":        {review: review{by: manager, of: "namespaces/status", old: space("shop", inShop), object: space("shop", nil)}, want: refused},
		"by hanse kubelet":            {review: review{by: kubelet, old: space("shop", inShop)}, want: refused},
		"by an administrator":         {review: review{by: admin, old: space("shop", inShop)}},
		"by a namesake":               {review: review{by: "system:serviceaccount:shop:hanse-manager", old: space("shop", inShop)}},
	})
}
