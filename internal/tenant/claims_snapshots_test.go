// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// snapshotOf is a ShadowClaim pvc-1 for a snapshot of the volume for pvc-0.
func snapshotOf(phase string) *v1alpha1.ShadowClaim {
	shadow := shadowClaim(phase)
	shadow.Spec.SnapshotOf = "pvc-0"
	return shadow
}

func controlled(name string, by types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: lubeck.name(), Name: name, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "hanse.dev/v1alpha1", Kind: "ShadowClaim", Name: name, UID: by, Controller: new(true),
	}}}
}

// source is the ShadowClaim pvc-0 and its claim, which belongs to the one of that UID.
func source(owner types.UID) []client.Object {
	shadow := shadowClaim("Bound")
	shadow.Name, shadow.UID = "pvc-0", "uid-source"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: controlled("pvc-0", owner)}
	claim.Spec.Resources.Requests = testkit.Quantities("storage", "1Gi")
	return []client.Object{shadow, claim}
}

func TestAShadowClaimGetsASnapshotOfAnother(t *testing.T) {
	w, shadow := keepClaim(t, append(source("uid-source"), snapshotOf(""), peer())...)
	made := testkit.Get[snapshotv1.VolumeSnapshot](w.Home, lubeck.name(), "pvc-1")
	if *made.Spec.Source.PersistentVolumeClaimName != "pvc-0" || !metav1.IsControlledBy(made, shadow) {
		t.Errorf("made %v of %v", made.Spec, made.OwnerReferences)
	}
	if w.Home.Find(&corev1.PersistentVolumeClaim{}, lubeck.name(), "pvc-1") {
		t.Error("there is a claim, too")
	}
	expectReady(t, shadow, metav1.ConditionTrue, v1alpha1.ReasonVolumeMade)
}

func TestAShadowClaimGetsNoSnapshot(t *testing.T) {
	limited := peer()
	limited.Spec.Limits = &v1alpha1.PeerLimits{Resources: testkit.Quantities("storage", "1Gi")}
	for name, test := range map[string]struct {
		objects []client.Object
		reason  string
	}{
		"of what is not kept":            {[]client.Object{snapshotOf(""), peer()}, v1alpha1.ReasonVolumeRefused},
		"of a claim of the provider":     {append(source("of-another"), snapshotOf(""), peer()), v1alpha1.ReasonVolumeRefused},
		"for which there is no room":     {append(source("uid-source"), snapshotOf(""), limited), v1alpha1.ReasonVolumeRefused},
		"in place of a deleted one":      {append(source("uid-source"), snapshotOf("Bound"), peer()), v1alpha1.ReasonVolumeLost},
		"of a name that another one has": {append(source("uid-source"), snapshotOf(""), peer(), &snapshotv1.VolumeSnapshot{ObjectMeta: controlled("pvc-1", "other")}), v1alpha1.ReasonVolumeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			_, shadow := keepClaim(t, test.objects...)
			expectReady(t, shadow, metav1.ConditionFalse, test.reason)
		})
	}
}

func TestAPeerIsToldHowItsSnapshotStands(t *testing.T) {
	for name, test := range map[string]struct {
		status *snapshotv1.VolumeSnapshotStatus
		phase  string
		told   string
	}{
		"not taken":  {nil, "Pending", ""},
		"not so far": {&snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: new("disk full")}}, "Pending", "disk full"},
		"ready":      {&snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: new(resource.MustParse("1Gi"))}, "Bound", ""},
	} {
		t.Run(name, func(t *testing.T) {
			there := &snapshotv1.VolumeSnapshot{ObjectMeta: controlled("pvc-1", "uid-shadow"), Status: test.status}
			_, shadow := keepClaim(t, append(source("uid-source"), snapshotOf("Pending"), peer(), there)...)
			ready := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionReady)
			if shadow.Status.Phase != test.phase || ready.Message != test.told || ready.Status != metav1.ConditionTrue {
				t.Errorf("told %+v", shadow.Status)
			}
		})
	}
}

func TestAClaimBeginsAsACopyOfAPeersSnapshotAlone(t *testing.T) {
	for name, test := range map[string]struct {
		source *v1alpha1.ShadowClaim
		made   bool
	}{
		"of a snapshot": {snapshotOf("Bound"), true},
		"of a claim":    {shadowClaim("Bound"), false},
		"of nothing":    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			restored := shadowClaim("")
			restored.Spec.DataSource = "snapshot-1"
			objects := []client.Object{restored, peer()}
			if test.source != nil {
				test.source.Name, test.source.UID = "snapshot-1", "uid-snapshot"
				objects = append(objects, test.source)
			}
			w, _ := keepClaim(t, objects...)
			claim := &corev1.PersistentVolumeClaim{}
			if w.Home.Find(claim, lubeck.name(), "pvc-1") != test.made {
				t.Fatalf("there is a claim: %t", !test.made)
			}
			if test.made && (claim.Spec.DataSource == nil || claim.Spec.DataSource.Name != "snapshot-1") {
				t.Errorf("it begins with %v", claim.Spec.DataSource)
			}
		})
	}
}

func TestSnapshotsCountAsStorage(t *testing.T) {
	limited := peer()
	limited.Spec.Limits = &v1alpha1.PeerLimits{Resources: testkit.Quantities("storage", "3Gi")}
	taken := snapshotOf("Bound")
	taken.Name, taken.UID = "snapshot-1", "uid-snapshot"
	_, fits := keepClaim(t, append(source("uid-source"), taken, shadowClaim(""), limited)...)
	expectReady(t, fits, metav1.ConditionTrue, v1alpha1.ReasonVolumeMade)
	more := shadowClaim("")
	more.Spec.Storage = resource.MustParse("2Gi")
	_, refused := keepClaim(t, append(source("uid-source"), taken, more, limited)...)
	expectReady(t, refused, metav1.ConditionFalse, v1alpha1.ReasonVolumeRefused)
}
