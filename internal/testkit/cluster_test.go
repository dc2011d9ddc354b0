// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func applied(w *World, owner, condition string) {
	w.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Peer", "metadata": map[string]any{"name": "turin"},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": condition, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2031-05-07T12:00:00Z",
		}}},
	}}
	err := w.Home.Client.Status().Apply(
		w.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(owner), client.ForceOwnership,
	)
	if err != nil {
		w.Fatal(err)
	}
}

func TestTwoWritersOfConditionsKeepEachOthers(t *testing.T) {
	w := NewWorld(t, Peer("turin", v1alpha1.RoleProvider))
	applied(w, "one", v1alpha1.ConditionReady)
	applied(w, "two", v1alpha1.ConditionReachable)
	peer := Get[v1alpha1.Peer](w.Home, "", "turin")
	ExpectCondition(t, peer.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "Test")
	ExpectCondition(t, peer.Status.Conditions, v1alpha1.ConditionReachable, metav1.ConditionTrue, "Test")
	w.Home.ExpectWrites("apply/status Peer turin", "apply/status Peer turin")
}

func TestWritesAreRecordedAndRefused(t *testing.T) {
	w := NewWorld(t)
	w.Home.Put(Pod("shop", "web-1", "hanse-turin"))
	w.Home.ExpectWrites()
	errFull := errors.New("full")
	stop := w.Home.Refuse("create Pod", errFull)
	if err := w.Home.Client.Create(t.Context(), Pod("shop", "web-2", "")); !errors.Is(err, errFull) {
		t.Errorf("got %v, want %v", err, errFull)
	}
	stop()
	if err := w.Home.Client.Create(t.Context(), Pod("shop", "web-2", "")); err != nil {
		t.Error(err)
	}
	w.Home.ExpectWrites("create Pod web-2", "create Pod web-2")
	if diff := cmp.Diff([]string{"web-1", "web-2"}, w.Home.Names(&corev1.PodList{}, "shop")); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func TestChangeStoresSpecAndStatus(t *testing.T) {
	w := NewWorld(t, Pod("shop", "web-1", "hanse-turin"))
	Change(w.Home, "shop", "web-1", func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app": "web"}
		pod.Status.Phase = corev1.PodRunning
	})
	pod := Get[corev1.Pod](w.Home, "shop", "web-1")
	if pod.Labels["app"] != "web" || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("labels %v, phase %s", pod.Labels, pod.Status.Phase)
	}
}
