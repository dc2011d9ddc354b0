// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
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

func TestTheCacheKeepsPodsThatAreStillToBeMade(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.ShadowPod)
		kept   bool
	}{
		"new":          {func(*v1alpha1.ShadowPod) {}, true},
		"new and long": {func(s *v1alpha1.ShadowPod) { s.Spec.Pod = strings.Repeat("p", keptPod+1) }, false},
		"waits for room": {func(s *v1alpha1.ShadowPod) {
			s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionScheduled}}
		}, true},
		"has a pod":                 {func(s *v1alpha1.ShadowPod) { s.Status.PodUID, s.Status.ObservedGeneration = "pod", 1 }, false},
		"has a pod that it changes": {func(s *v1alpha1.ShadowPod) { s.Status.PodUID, s.Generation = "pod", 2 }, true},
		"is given up": {func(s *v1alpha1.ShadowPod) {
			s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUnrecoverable, Status: metav1.ConditionTrue}}
		}, false},
	} {
		shadow := shadowPod()
		shadow.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "hanse-kubelet"}}
		c.change(shadow)
		if _, err := TrimShadowPod(shadow); err != nil {
			t.Fatal(err)
		}
		if kept := shadow.Spec.Pod != ""; kept != c.kept || len(shadow.ManagedFields) > 0 {
			t.Errorf("one that %s: its pod is kept: %t; its managers are %v", name, kept, shadow.ManagedFields)
		}
	}
	if gone, err := TrimShadowPod(toolscache.DeletedFinalStateUnknown{Key: "gone"}); err != nil || gone == nil {
		t.Errorf("one that went unseen: %v, %v", gone, err)
	}
}

// What a consumer sends stays out of our memory, however much of it etcd takes.
func TestLargeShadowPodsCostNoMemory(t *testing.T) {
	const number, atMost = 400, 4 << 20
	sent, err := json.Marshal(func() *v1alpha1.ShadowPod {
		shadow := shadowPod()
		shadow.Spec.Pod = strings.Repeat("p", v1alpha1.MaxShadowPodBytes)
		shadow.Spec.Onward = strings.Repeat("o", v1alpha1.MaxOnwardBytes)
		return shadow
	}())
	if err != nil {
		t.Fatal(err)
	}
	inUse := func() uint64 {
		stats := runtime.MemStats{}
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := inUse()
	kept := make([]any, number)
	for i := range kept {
		shadow := &v1alpha1.ShadowPod{}
		if err := json.Unmarshal(sent, shadow); err != nil {
			t.Fatal(err)
		}
		if kept[i], err = TrimShadowPod(shadow); err != nil {
			t.Fatal(err)
		}
	}
	after := inUse()
	t.Logf("%d ShadowPods of %d bytes: %d bytes in use", number, len(sent), int64(after)-int64(before))
	if after > before+atMost {
		t.Errorf("%d bytes are in use for what was %d", after-before, number*len(sent))
	}
	runtime.KeepAlive(kept)
}
