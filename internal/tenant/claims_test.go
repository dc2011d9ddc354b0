// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func shadowClaim(phase string) *v1alpha1.ShadowClaim {
	return &v1alpha1.ShadowClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: lubeck.name(), Name: "pvc-1", UID: "uid-shadow", Generation: 1},
		Spec: v1alpha1.ShadowClaimSpec{
			HomeUID: "u", Storage: resource.MustParse("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
		Status: v1alpha1.ShadowClaimStatus{Phase: phase},
	}
}

// keepClaim looks at the ShadowClaim in a world with those objects.
func keepClaim(t *testing.T, objects ...client.Object) (*world, *v1alpha1.ShadowClaim) {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: "local", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
	}}
	w := newWorld(t, append(objects, class, lubeck.namespace(""))...)
	w.Reconcile(newClaimReconciler(w.Home.Client, w.Home.Client, newEventFeed(w.Home.Client, nil, w.Clock)), lubeck.name(), "pvc-1")
	return w, testkit.Get[v1alpha1.ShadowClaim](w.Home, lubeck.name(), "pvc-1")
}

func expectReady(t *testing.T, shadow *v1alpha1.ShadowClaim, status metav1.ConditionStatus, reason string) {
	t.Helper()
	ready := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != status || ready.Reason != reason {
		t.Errorf("Ready is %v, want %s for %s", ready, status, reason)
	}
}

func TestAShadowClaimGetsAClaimOfItsOwn(t *testing.T) {
	w, shadow := keepClaim(t, shadowClaim(""), peer())
	claim := testkit.Get[corev1.PersistentVolumeClaim](w.Home, lubeck.name(), "pvc-1")
	if *claim.Spec.StorageClassName != "local" || !metav1.IsControlledBy(claim, shadow) {
		t.Errorf("made %v of %v", claim.Spec, claim.OwnerReferences)
	}
	expectReady(t, shadow, metav1.ConditionTrue, v1alpha1.ReasonVolumeMade)
}

func TestAShadowClaimGetsNoClaim(t *testing.T) {
	cordoned := peer()
	cordoned.Spec.Access = v1alpha1.AccessCordoned
	theirs := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: lubeck.name(), Name: "pvc-1"}}
	unknown := shadowClaim("")
	unknown.Spec.StorageClass = "secret"
	for name, test := range map[string]struct {
		objects []client.Object
		reason  string
		exists  bool
	}{
		"while the peer is cordoned":         {[]client.Object{shadowClaim(""), cordoned}, v1alpha1.ReasonVolumeRefused, false},
		"of a class that is not offered":     {[]client.Object{unknown, peer()}, v1alpha1.ReasonVolumeRefused, false},
		"of a name that another has":         {[]client.Object{shadowClaim(""), peer(), theirs}, v1alpha1.ReasonVolumeRefused, true},
		"in place of one that was deleted":   {[]client.Object{shadowClaim("Bound"), peer()}, v1alpha1.ReasonVolumeLost, false},
		"nor later, when that is known once": {[]client.Object{shadowClaim("Lost"), peer()}, v1alpha1.ReasonVolumeLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, shadow := keepClaim(t, test.objects...)
			if w.Home.Find(&corev1.PersistentVolumeClaim{}, lubeck.name(), "pvc-1") != test.exists {
				t.Error("there is another claim than before")
			}
			expectReady(t, shadow, metav1.ConditionFalse, test.reason)
		})
	}
}

func TestAPeerIsToldHowMuchRoomThereIsAndNoNode(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: lubeck.name(), Name: "pvc-1", Annotations: map[string]string{"volume.kubernetes.io/selected-node": "worker-7"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "hanse.dev/v1alpha1", Kind: "ShadowClaim", Name: "pvc-1", UID: "uid-shadow", Controller: new(true)}},
	}}
	claim.Spec.Resources.Requests = testkit.Quantities("storage", "1Gi")
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, testkit.Quantities("storage", "1Gi")
	more := shadowClaim("Bound")
	more.Spec.Storage = resource.MustParse("2Gi")
	w, shadow := keepClaim(t, more, peer(), claim)
	if got := shadow.Status; got.Phase != "Bound" || got.Capacity == nil || got.Capacity.String() != "1Gi" {
		t.Errorf("told %v", got)
	}
	grown := testkit.Get[corev1.PersistentVolumeClaim](w.Home, lubeck.name(), "pvc-1").Spec.Resources.Requests
	if got := grown[corev1.ResourceStorage]; got.String() != "2Gi" {
		t.Errorf("asks for %s", got.String())
	}
}

// claimIn is a claim of a peer that asks for so much, in the namespace.
func claimIn(namespace, name, storage string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	claim.Spec.Resources.Requests = testkit.Quantities("storage", storage)
	return claim
}

func TestTheLimitOfStorageIsThatOfAllTwinsOfAPeer(t *testing.T) {
	second, foreign := twinOf{peer: lubeck.peer, home: "archive"}, twinOf{peer: "bremen", home: "shop"}
	for name, test := range map[string]struct {
		others []client.Object
		limit  string
		made   bool
	}{
		"room for it":                           {nil, "1Gi", true},
		"more than the whole limit":             {nil, "512Mi", false},
		"no limit":                              {[]client.Object{claimIn(second.name(), "pvc-2", "1Ti")}, "", true},
		"another twin has it all":               {[]client.Object{claimIn(second.name(), "pvc-2", "1Gi")}, "1Gi", false},
		"another twin leaves enough":            {[]client.Object{claimIn(second.name(), "pvc-2", "1Gi")}, "2Gi", true},
		"a twin of another peer does not count": {[]client.Object{claimIn(foreign.name(), "pvc-2", "1Gi")}, "1Gi", true},
	} {
		t.Run(name, func(t *testing.T) {
			bounded := peer()
			if test.limit != "" {
				bounded.Spec.Limits = &v1alpha1.PeerLimits{Resources: testkit.Quantities("storage", test.limit)}
			}
			w, shadow := keepClaim(t, append(test.others, shadowClaim(""), bounded, second.namespace(""), foreign.namespace(""))...)
			if w.Home.Find(&corev1.PersistentVolumeClaim{}, lubeck.name(), "pvc-1") != test.made {
				t.Errorf("made: %v", !test.made)
			}
			if !test.made {
				expectReady(t, shadow, metav1.ConditionFalse, v1alpha1.ReasonVolumeRefused)
			}
		})
	}
}

// blindToClaims is a cache that does not show claims yet.
type blindToClaims struct{ client.WithWatch }

func (c blindToClaims) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, of := list.(*corev1.PersistentVolumeClaimList); of {
		return nil
	}
	return c.WithWatch.List(ctx, list, options...)
}

func TestClaimsThatComeAtOnceDoNotShareTheRoomOfOne(t *testing.T) {
	bounded, first, second := peer(), shadowClaim(""), shadowClaim("")
	bounded.Spec.Limits = &v1alpha1.PeerLimits{Resources: testkit.Quantities("storage", "1Gi")}
	second.Name, second.UID = "pvc-2", "uid-second"
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: "local", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
	}}
	w := newWorld(t, class, lubeck.namespace(""), bounded, first, second)
	r := newClaimReconciler(blindToClaims{w.Home.Client}, w.Home.Client, newEventFeed(w.Home.Client, nil, w.Clock))
	made := func(name string) bool { return w.Home.Find(&corev1.PersistentVolumeClaim{}, lubeck.name(), name) }
	w.Reconcile(r, lubeck.name(), "pvc-1")
	if again := w.Reconcile(r, lubeck.name(), "pvc-2"); again.RequeueAfter != retryAtMost || made("pvc-2") {
		t.Errorf("the second is made: %v, looked at in %s", made("pvc-2"), again.RequeueAfter)
	}
	w.Home.Remove(first, testkit.Get[corev1.PersistentVolumeClaim](w.Home, lubeck.name(), "pvc-1"))
	w.Reconcile(r, lubeck.name(), "pvc-1")
	if w.Reconcile(r, lubeck.name(), "pvc-2"); !made("pvc-2") {
		t.Error("the second is not made when the first is gone")
	}
}
