// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// atHome is metadata with all that must not travel.
func atHome(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: "u-1", ResourceVersion: "7", Generation: 2, GenerateName: "x",
		Labels: map[string]string{
			"app": "web", "example.com/tier": "front", "app.kubernetes.io/name": "web", "hanse.dev/peer": "milan",
			"node.k8s.io/x": "y", "nothanse.dev/x": "y",
		},
		Annotations:     map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "reloader.example.com/match": "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}},
		Finalizers:      []string{"example.com/hold"},
	}
}

func abroad(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop-turin", Name: name,
		Labels: map[string]string{
			"app": "web", "example.com/tier": "front", "nothanse.dev/x": "y", v1alpha1.LabelReflected: "true",
		},
		Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "u-1", v1alpha1.AnnotationOriginVersion: "7"},
	}
}

func TestOutbound(t *testing.T) {
	for name, test := range map[string]struct{ source, want Object }{
		"a ConfigMap": {
			source: &corev1.ConfigMap{
				ObjectMeta: atHome("settings"), Immutable: new(true),
				Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {0}},
			},
			want: &corev1.ConfigMap{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: abroad("settings"),
				Immutable: new(true), Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {0}},
			},
		},
		"a Secret": {
			source: &corev1.Secret{
				ObjectMeta: atHome("password"), Type: corev1.SecretTypeTLS, Immutable: new(true), Data: map[string][]byte{"tls.key": {1}},
			},
			want: &corev1.Secret{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: abroad("password"),
				Type: corev1.SecretTypeTLS, Immutable: new(true), Data: map[string][]byte{"tls.key": {1}},
			},
		},
		"a token of a service account, as it was made before Kubernetes 1.24": {
			source: &corev1.Secret{
				ObjectMeta: atHome("robot"), Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": {1}},
			},
			want: &corev1.Secret{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: abroad("robot"),
				Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"token": {1}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.source.DeepCopyObject()
			got, err := Outbound(test.source, "shop-turin", ReachReferenced)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.source); diff != "" {
				t.Errorf("the source was changed:\n%s", diff)
			}
		})
	}
}

func TestTheLargestGoes(t *testing.T) {
	named := metav1.ObjectMeta{Name: "a"}
	for _, source := range []Object{
		&corev1.Secret{ObjectMeta: named, Data: map[string][]byte{"k": make([]byte, 1<<20-1)}},
		&corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"k": strings.Repeat("x", 1<<20-1)}},
	} {
		if _, err := Outbound(source, "shop-turin", ReachReferenced); err != nil {
			t.Errorf("%T: %v", source, err)
		}
	}
}

func TestWhatStaysAtHome(t *testing.T) {
	named := metav1.ObjectMeta{Name: "a"}
	for name, test := range map[string]struct {
		source Object
		want   string
	}{
		"a way into":         {&corev1.Secret{ObjectMeta: named, Type: corev1.SecretTypeBootstrapToken}, "nodes join"},
		"by label":           {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{v1alpha1.LabelSkipReflection: "true"}}}, "skip-reflection"},
		"by annotation":      {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1alpha1.LabelSkipReflection: "true"}}}, "skip-reflection"},
		"the root CA":        {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}}, "has its own"},
		"a large Secret":     {&corev1.Secret{ObjectMeta: named, Data: map[string][]byte{"k": make([]byte, 1<<20)}}, "bytes"},
		"a large ConfigMap":  {&corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"k": strings.Repeat("x", 1<<20)}}, "bytes"},
		"large in two parts": {&corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"k": strings.Repeat("x", 1<<19)}, BinaryData: map[string][]byte{"l": make([]byte, 1<<19)}}, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Outbound(test.source, "shop-turin", ReachReferenced)
			var refusal Refusal
			if !errors.As(err, &refusal) || !strings.Contains(string(refusal), test.want) {
				t.Errorf("got %v, %v, want a refusal about %q", got, err, test.want)
			}
		})
	}
	var refusal Refusal
	if _, err := Outbound(&corev1.Pod{}, "shop-turin", ReachReferenced); err == nil || errors.As(err, &refusal) {
		t.Errorf("a Pod: got %v, want another error", err)
	}
}
