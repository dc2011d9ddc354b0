package tenant

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestWhomAnEventConcerns(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"), lubeck.namespace(""), shadowPod())
	m, k := mapperIn(w), newShadowPodReconciler(w.config(), w.Home.Client, w.Home.Server, w.Home.Server)
	mapping := requestFor("hanse-peer-lubeck", "shop")
	for name, c := range map[string]struct{ got, want []reconcile.Request }{
		"a twin: its mapping":              {m.mappingsOfNamespace(t.Context(), lubeck.namespace("")), mapping},
		"a tenant namespace: its mappings": {m.mappingsOfNamespace(t.Context(), tenantNamespace()), mapping},
		"another namespace: nobody":        {m.mappingsOfNamespace(t.Context(), &corev1.Namespace{}), nil},
		"a Peer: its mappings and twins":   {m.mappingsOfPeer(t.Context(), peer()), append(mapping, mapping...)},
		"a twin: its ShadowPods":           {k.shadowsOfTwin(t.Context(), lubeck.namespace("")), requestFor(lubeck.name(), "web")},
		"a pod: the ShadowPod of its name": {k.podChanged(t.Context(), &corev1.Pod{ObjectMeta: shadowPod().ObjectMeta}), requestFor(lubeck.name(), "web")},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestWhichPodsAreWatched(t *testing.T) {
	owned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "hanse.dev/v1alpha1", Kind: "ShadowPod", Controller: new(bool),
	}}}}
	*owned.OwnerReferences[0].Controller = true
	labelled := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelHomeUID: "u"}}}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{"owned": {owned, true}, "labelled": {labelled, true}, "any": {&corev1.Pod{}, false}} {
		if got := remotePods.Create(event.CreateEvent{Object: c.pod}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
