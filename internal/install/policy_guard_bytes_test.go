// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// twinWithRoom are the labels of a twin with room for so many bytes of a kind.
func twinWithRoom(bytes string) map[string]string {
	labels := maps.Clone(inTwin)
	labels[v1alpha1.LabelRoom] = bytes
	return labels
}

// holding is the quota of a twin in which there are so many objects.
func holding(counts map[corev1.ResourceName]string) *corev1.ResourceQuota {
	quota := withKind(&corev1.ResourceQuota{}, "", "v1", "ResourceQuota")
	quota.Status.Used = corev1.ResourceList{}
	for kind, count := range counts {
		quota.Status.Used[kind] = resource.MustParse(count)
	}
	return quota
}

func podOf(t *testing.T, metadata, pod string) *unstructured.Unstructured {
	t.Helper()
	shadow := message(t, "ShadowPod", metadata)
	if err := unstructured.SetNestedField(shadow.Object, pod, "spec", "pod"); err != nil {
		t.Fatal(err)
	}
	return shadow
}

func onwardOf(t *testing.T, size int) *unstructured.Unstructured {
	t.Helper()
	shadow := podOf(t, "", "")
	if err := unstructured.SetNestedField(shadow.Object, strings.Repeat("o", size), "spec", "onward"); err != nil {
		t.Fatal(err)
	}
	return shadow
}

// noted is an object with a long account of who wrote its fields.
func noted(t *testing.T, kind string, size int) *unstructured.Unstructured {
	t.Helper()
	object := message(t, kind, "")
	entry := map[string]any{"manager": "x", "fieldsV1": map[string]any{"f:spec": map[string]any{strings.Repeat("a", size): map[string]any{}}}}
	if err := unstructured.SetNestedSlice(object.Object, []any{entry}, "metadata", "managedFields"); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestWhatAPeerWritesHasRoomInItsTwin(t *testing.T) {
	const (
		mebibyte = "1048576"
		noRoom   = "the provider has no room"
		kib      = 1 << 10
	)
	pods := func(count string) *corev1.ResourceQuota {
		return holding(map[corev1.ResourceName]string{"count/shadowpods.hanse.dev": count})
	}
	endpoints := func(count string) *corev1.ResourceQuota {
		return holding(map[corev1.ResourceName]string{"count/shadowendpointslices.hanse.dev": count})
	}
	copies := func(configMaps, secrets string) *corev1.ResourceQuota {
		return holding(map[corev1.ResourceName]string{
			"count/configmaps": configMaps, "count/secrets": secrets, "count/services": "0",
		})
	}
	record := func(size int) runtime.Object { return podOf(t, "", strings.Repeat("a", size)) }
	configMap := func(size int, managers ...string) runtime.Object {
		made := &corev1.ConfigMap{Data: map[string]string{"f": strings.Repeat("a", size)}}
		for _, manager := range managers {
			made.ManagedFields = append(made.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: manager, FieldsV1: metav1.NewFieldsV1(fmt.Sprintf(`{"f:data":{".":{},"f:%s":{}}}`, strings.Repeat("f", size))),
			})
		}
		made.Namespace = "shop-turin"
		return withKind(made, "", "v1", "ConfigMap")
	}
	secret := func(size int) runtime.Object {
		return withKind(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop-turin"}, Data: map[string][]byte{"f": make([]byte, size)},
		}, "", "v1", "Secret")
	}
	fields := func(text string) string { return "managedFields: [{manager: x, fieldsV1: " + text + "}]" }
	by := func(count *corev1.ResourceQuota, object runtime.Object) review {
		return review{by: peer, in: twinWithRoom(mebibyte), params: count, object: object}
	}
	from := func(r review, old runtime.Object) review {
		r.old = old
		return r
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-bytes"), map[string]decision{
		"the first":                          {review: by(pods("0"), record(256*kib))},
		"one that is too large":              {review: by(pods("0"), record(256*kib+1)), want: "spec.pod: at most"},
		"one that is too large in bytes":     {review: by(pods("0"), podOf(t, "", strings.Repeat("é", 200*kib))), want: "spec.pod: at most"},
		"the last large one":                 {review: by(pods("2"), record(255*kib))},
		"one large one too many":             {review: by(pods("4"), record(255*kib)), want: noRoom},
		"a small one instead":                {review: by(pods("511"), record(2*kib-1))},
		"no room for a small one":            {review: by(pods("1024"), record(1)), want: noRoom},
		"counts in thousands":                {review: by(pods("10k"), record(1)), want: noRoom},
		"nobody counts yet":                  {review: by(holding(nil), record(2*kib)), want: noRoom},
		"nothing is known of the quota yet":  {review: by(withKind(&corev1.ResourceQuota{}, "", "v1", "ResourceQuota"), record(2*kib)), want: noRoom},
		"a twin from before":                 {review: review{by: peer, in: inTwin, params: pods("3"), object: record(255 * kib)}},
		"quotes are two bytes":               {review: by(pods("3"), podOf(t, "", strings.Repeat(`"`, 200*kib))), want: noRoom},
		"backslashes too":                    {review: by(pods("3"), podOf(t, "", strings.Repeat(`\`, 200*kib))), want: noRoom},
		"what would be six bytes":            {review: by(pods("0"), podOf(t, "", `{"a":"<"}`)), want: "spec.pod, spec.onward and spec.object are sent"},
		"hidden in spec.onward":              {review: by(pods("32"), onwardOf(t, 32*kib-100)), want: noRoom},
		"what is asked of further clusters":  {review: by(pods("31"), onwardOf(t, 32*kib-100))},
		"what JSON leaves as it is":          {review: by(pods("0"), podOf(t, "", "\u007f\u2028é"))},
		"and what else would":                {review: by(pods("0"), podOf(t, "", "{\n}")), want: "spec.pod, spec.onward and spec.object are sent"},
		"hidden in an annotation":            {review: by(pods("3"), podOf(t, "annotations: {a: "+strings.Repeat("a", 256*kib)+"}", "")), want: noRoom},
		"hidden in labels":                   {review: by(pods("400"), podOf(t, "labels: {a: "+strings.Repeat("a", 4*kib)+"}", "")), want: noRoom},
		"hidden in who wrote its fields":     {review: by(pods("3"), noted(t, "ShadowPod", 256*kib)), want: noRoom},
		"hidden deeper":                      {review: by(pods("0"), podOf(t, fields(`{"f:spec": {"f:a": {"f:b": {"f:c": {"f:d": {}}}}}}`), "")), want: noRoom},
		"what the API server notes":          {review: by(pods("0"), podOf(t, fields(`{"f:metadata": {"f:annotations": {".": {}, "f:a": {}}, "f:finalizers": {".": {}, "v:x": {}}}, "f:spec": {}}`), ""))},
		"a change when there is no room":     {review: from(by(pods("10k"), record(3*kib+500)), record(3*kib))},
		"a change that makes it smaller":     {review: from(by(pods("10k"), record(3*kib)), record(20*kib))},
		"one that makes it larger":           {review: from(by(pods("10k"), record(5*kib)), record(3*kib)), want: noRoom},
		"one that makes it larger, and room": {review: from(by(pods("10"), record(50*kib)), record(3*kib))},
		"a ConfigMap":                        {review: by(copies("0", "0"), configMap(1000*kib))},
		"a ConfigMap of many managers":       {review: by(copies("0", "0"), configMap(300*kib, "a", "b", "c")), want: noRoom},
		"a ConfigMap that is noted":          {review: by(copies("0", "0"), configMap(300*kib, "a"))},
		"a ConfigMap beside others":          {review: by(copies("1", "0"), configMap(1000*kib)), want: noRoom},
		"a ConfigMap beside Secrets":         {review: by(copies("0", "1"), configMap(1000*kib)), want: noRoom},
		"a Secret":                           {review: by(copies("0", "0"), secret(700*kib))},
		"a Secret beside ConfigMaps":         {review: by(copies("1", "0"), secret(700*kib)), want: noRoom},
		"copies beside many ShadowPods":      {review: by(holding(map[corev1.ResourceName]string{"count/shadowpods.hanse.dev": "10k", "count/configmaps": "0", "count/secrets": "0", "count/services": "0"}), configMap(1000*kib))},
		"a Service":                          {review: by(copies("0", "0"), service(asItIs))},
		"a Service as the API server notes it": {review: by(copies("100", "0"), service(func(s *corev1.Service) {
			s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "hanse", FieldsV1: metav1.NewFieldsV1(
				`{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:selector":{},"f:type":{}}}`)}}
		}))},
		"a Service of many ports": {review: by(copies("300", "0"), service(func(s *corev1.Service) {
			s.Spec.Ports = slices.Repeat(s.Spec.Ports, 100)
		})), want: noRoom},
		"a Service of a long selector": {review: by(copies("10", "0"), service(func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"a": strings.Repeat("a", 100*kib)}
		})), want: noRoom},
		"a Service beside many": {review: by(holding(map[corev1.ResourceName]string{
			"count/configmaps": "0", "count/secrets": "0", "count/services": "1200",
		}), service(asItIs)), want: noRoom},
		"endpoints":            {review: by(endpoints("100"), slice(asItIs))},
		"endpoints of nothing": {review: by(endpoints("0"), slice(func(s *v1alpha1.ShadowEndpointSlice) { s.Spec.Endpoints, s.Spec.Ports = nil, nil }))},
		"endpoints beside many copies": {review: by(holding(map[corev1.ResourceName]string{
			"count/configmaps": "10k", "count/secrets": "10k", "count/services": "10k", "count/shadowendpointslices.hanse.dev": "1",
		}), slice(asItIs))},
		"many endpoints": {review: by(endpoints("100"), slice(func(s *v1alpha1.ShadowEndpointSlice) {
			s.Spec.Endpoints = slices.Repeat(s.Spec.Endpoints, 200)
		})), want: noRoom},
		"what others write": {review: review{by: admin, in: twinWithRoom("0"), params: pods("0"), object: configMap(10)}},
	})
}
