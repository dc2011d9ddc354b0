// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestPeersWriteCopiesAlone(t *testing.T) {
	configMap := func(change func(*corev1.ConfigMap)) runtime.Object {
		made := withKind(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-turin", Name: "settings",
			Labels: map[string]string{v1alpha1.LabelReflected: "true", "app": "web"},
			Annotations: map[string]string{
				v1alpha1.AnnotationOriginUID: "u", v1alpha1.AnnotationOriginVersion: "1",
			},
		}}, "", "v1", "ConfigMap")
		if change != nil {
			change(made)
		}
		return made
	}
	secret := func(kind corev1.SecretType) runtime.Object {
		return withKind(&corev1.Secret{Type: kind, ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-turin", Name: "password", Labels: map[string]string{v1alpha1.LabelReflected: "true"},
		}}, "", "v1", "Secret")
	}
	good := configMap(nil)
	theirs := configMap(func(c *corev1.ConfigMap) { c.Labels, c.Annotations = nil, nil })
	rootCA := configMap(func(c *corev1.ConfigMap) { c.Name = "kube-root-ca.crt" })
	unlabelled := configMap(func(c *corev1.ConfigMap) { c.Labels = map[string]string{"app": "web"} })
	owned := configMap(func(c *corev1.ConfigMap) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "kube-system", UID: "u"}}
	})
	held := configMap(func(c *corev1.ConfigMap) { c.Finalizers = []string{"example.com/mine"} })
	labelled := configMap(func(c *corev1.ConfigMap) { c.Labels[v1alpha1.LabelPeer] = "milan" })
	annotated := configMap(func(c *corev1.ConfigMap) { c.Annotations["reloader.example.com/auto"] = "true" })
	const (
		onlyCopies = "metadata.labels: a peer makes"
		noToken    = "type: "
	)
	expectDecisions(t, validatingPolicy(t, "hanse-guard-copies"), map[string]decision{
		"a ConfigMap":                   {review: review{by: peer, in: inTwin, object: good}},
		"a change of it":                {review: review{by: peer, in: inTwin, old: good, object: good}},
		"its end":                       {review: review{by: peer, in: inTwin, old: good}},
		"a Secret":                      {review: review{by: peer, in: inTwin, object: secret(corev1.SecretTypeOpaque)}},
		"the end of a Secret":           {review: review{by: peer, in: inTwin, old: secret(corev1.SecretTypeOpaque)}},
		"one to pull images with":       {review: review{by: peer, in: inTwin, object: secret(corev1.SecretTypeDockerConfigJson)}},
		"one that is no copy":           {review: review{by: peer, in: inTwin, object: unlabelled}, want: onlyCopies},
		"a change of another's":         {review: review{by: peer, in: inTwin, old: theirs, object: good}, want: onlyCopies},
		"the end of another's":          {review: review{by: peer, in: inTwin, old: theirs}, want: onlyCopies},
		"one that it makes another's":   {review: review{by: peer, in: inTwin, old: good, object: unlabelled}, want: onlyCopies},
		"the root CA":                   {review: review{by: peer, in: inTwin, object: rootCA}, want: "metadata.name"},
		"the end of a root CA":          {review: review{by: peer, in: inTwin, old: rootCA}, want: "metadata.name"},
		"a token of a service account":  {review: review{by: peer, in: inTwin, object: secret(corev1.SecretTypeServiceAccountToken)}, want: noToken},
		"a token of a node":             {review: review{by: peer, in: inTwin, object: secret(corev1.SecretTypeBootstrapToken)}, want: noToken},
		"an owner":                      {review: review{by: peer, in: inTwin, object: owned}, want: "metadata.ownerReferences"},
		"an owner that is there":        {review: review{by: peer, in: inTwin, old: owned, object: owned}},
		"a finalizer":                   {review: review{by: peer, in: inTwin, object: held}, want: "metadata.finalizers"},
		"a label of ours":               {review: review{by: peer, in: inTwin, object: labelled}, want: "metadata.labels: a peer may not"},
		"an annotation":                 {review: review{by: peer, in: inTwin, object: annotated}, want: "metadata.annotations"},
		"whatever others do":            {review: review{by: admin, in: inTwin, object: owned}},
		"a Secret in another namespace": {review: review{by: peer, object: secret(corev1.SecretTypeServiceAccountToken)}, want: noToken},
	})
}
