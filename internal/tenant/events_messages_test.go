// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// said is an event about the object, which happened just now.
func (w *world) said(about client.Object, kind, reason, message string) *corev1.Event {
	now := metav1.NewTime(w.Clock.Now())
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.GetNamespace(), Name: reason},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID()},
		Type:           "Warning", Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "a-controller"},
	}
}

func worker() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-7.local"}}
}

func TestWhatHappensToAClaimIsToldInItsShadowClaim(t *testing.T) {
	w, _ := keepClaim(t, shadowClaim(""), peer(), worker())
	feed := newEventFeed(w.Home.Client, nil, w.Clock)
	r := newClaimReconciler(w.Home.Client, w.Home.Client, feed)
	claim := testkit.Get[corev1.PersistentVolumeClaim](w.Home, lubeck.name(), "pvc-1")
	failed := w.said(claim, claimKind, "ProvisioningFailed", "no room on worker-7 at 10.0.0.7")
	stranger := w.said(claim, claimKind, "ProvisioningFailed", "of an earlier claim")
	stranger.InvolvedObject.UID = "another"
	feed.hear(t.Context(), stranger)
	feed.hear(t.Context(), failed)
	if again := w.Reconcile(r, lubeck.name(), "pvc-1"); again.RequeueAfter != warningDelay {
		t.Errorf("it is told in %s", again.RequeueAfter)
	}
	w.Clock.Step(warningDelay)
	w.Reconcile(r, lubeck.name(), "pvc-1")
	shadow := testkit.Get[v1alpha1.ShadowClaim](w.Home, lubeck.name(), "pvc-1")
	want := []v1alpha1.RemoteEvent{{
		Type: "Warning", Reason: "ProvisioningFailed", Message: "no room on (node) at (address)", Source: v1alpha1.SourceKubernetes,
		Count: 1, First: failed.FirstTimestamp, Last: failed.LastTimestamp,
	}}
	if diff := cmp.Diff(want, shadow.Status.Events); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.Home.Wrote()
	for i := range 3600 / 15 { // a provisioner tries again and again
		w.Clock.Step(15 * time.Second)
		failed.Count, failed.LastTimestamp = int32(i+2), metav1.NewTime(w.Clock.Now())
		feed.hear(t.Context(), failed)
		w.Reconcile(r, lubeck.name(), "pvc-1")
	}
	if writes := len(w.Home.Wrote()); writes < 10 || writes > 14 {
		t.Errorf("%d writes in an hour", writes)
	}
	w.Home.Remove(testkit.Get[v1alpha1.ShadowClaim](w.Home, lubeck.name(), "pvc-1"))
	if w.Reconcile(r, lubeck.name(), "pvc-1"); len(feed.heard) > 0 {
		t.Errorf("keeps %v", feed.heard)
	}
}

func TestATwinIsWatchedWhileAClaimWaits(t *testing.T) {
	bound, growing := shadowClaim("Bound"), shadowClaim("Bound")
	bound.Status.Capacity = new(bound.Spec.Storage)
	growing.Status.Capacity = new(testkit.Quantities("storage", "1Mi")[corev1.ResourceStorage])
	for name, c := range map[string]struct {
		claims []client.Object
		want   bool
	}{
		"no claim":  {nil, false},
		"it waits":  {[]client.Object{shadowClaim("Pending")}, true},
		"it grows":  {[]client.Object{growing}, true},
		"it is all": {[]client.Object{bound}, false},
	} {
		w := newWorld(t, c.claims...)
		if got := newEventFeed(w.Home.Client, nil, w.Clock).inUse(t.Context(), lubeck.name()); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhatHappensToAServiceIsToldInItsFirstSlice(t *testing.T) {
	second := webAtHome(serves)
	second.Name = "web-2"
	copied := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: lubeck.name(), Name: "web", UID: "uid-copy",
		Labels: map[string]string{v1alpha1.LabelReflected: "true"}, Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "home"},
	}}
	own := copied.DeepCopy()
	own.Name, own.UID, own.Labels = "own", "uid-own", nil
	w := aWorldOf(t, second, webAtHome(serves), copied, own)
	feed := newEventFeed(w.Home.Client, nil, w.Clock)
	r := newEndpointsReconciler(w.Home.Client, feed)
	feed.hear(t.Context(), w.said(copied, serviceKind, "FailedToUpdateEndpointSlices", "quota"))
	feed.hear(t.Context(), w.said(own, serviceKind, "FailedToUpdateEndpointSlices", "quota"))
	w.Clock.Step(warningDelay)
	for _, name := range []string{"web-1", "web-2"} {
		w.Reconcile(r, lubeck.name(), name)
		told := testkit.Get[v1alpha1.ShadowEndpointSlice](w.Home, lubeck.name(), name).Status.Events
		if want := name == "web-1"; (len(told) == 1) != want {
			t.Errorf("%s tells %v", name, told)
		}
	}
}

func TestAnEndpointSliceThatAQuotaRefusesIsRefusedVisibly(t *testing.T) {
	ending := apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "x", nil)
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err  error
		told bool
	}{
		"a quota":        {apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "x", nil), true},
		"the twin ends":  {ending, false},
		"it is too busy": {apierrors.NewTooManyRequests("later", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorldOf(t, webAtHome(serves))
			stop := w.Home.Refuse("create EndpointSlice", c.err)
			r := newEndpointsReconciler(w.Home.Client, newEventFeed(w.Home.Client, nil, w.Clock))
			accepted := func() *metav1.Condition {
				slice := testkit.Get[v1alpha1.ShadowEndpointSlice](w.Home, lubeck.name(), "web-1")
				return meta.FindStatusCondition(slice.Status.Conditions, v1alpha1.ConditionAccepted)
			}
			if _, err := r.Reconcile(t.Context(), testkit.Request(lubeck.name(), "web-1")); err == nil {
				t.Error("it is not tried again")
			}
			if told := accepted(); (told != nil && strings.Contains(told.Message, "does not take")) != c.told {
				t.Errorf("told %v", told)
			}
			stop()
			w.Reconcile(r, lubeck.name(), "web-1")
			if told := accepted(); told != nil {
				t.Errorf("still told: %v", told)
			}
		})
	}
}
