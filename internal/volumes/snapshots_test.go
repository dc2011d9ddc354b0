// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const (
	contentName    = "snapcontent-uid-monday"
	shadowSnapshot = "snapshot-uid-monday"
)

// content is what the snapshot-controller makes for VolumeSnapshot monday of the volume.
func content() *snapshotv1.VolumeSnapshotContent {
	return &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: contentName, Finalizers: []string{reflection.FinalizerContent}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: v1alpha1.VolumesDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "shop", Name: "monday", UID: "uid-monday"},
			Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("turin/shop/" + volume)},
		},
	}
}

// snapshotWorld has a volume at the peer, and the content of a snapshot of it, as change has it.
func snapshotWorld(t *testing.T, change func(*snapshotv1.VolumeSnapshotContent)) *world {
	t.Helper()
	w := keptWorld(t, corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete)
	made := content()
	if change != nil {
		change(made)
	}
	w.Home.Put(made)
	return w
}

func (w *world) snap() { w.Helper(); w.Reconcile(w.snapshotter, "", contentName) }

func (w *world) content() *snapshotv1.VolumeSnapshotContent {
	w.Helper()
	return testkit.Get[snapshotv1.VolumeSnapshotContent](w.Home, "", contentName)
}

func TestASnapshotIsTakenAtThePeer(t *testing.T) {
	w := snapshotWorld(t, nil)
	w.snap()
	shadow := w.shadowOf(shadowSnapshot)
	if got := shadow.Spec; got.SnapshotOf != volume || got.HomeUID != "uid-monday" || got.Storage.String() != "1Gi" {
		t.Errorf("the peer is asked for %+v", got)
	}
	if status := w.content().Status; status != nil {
		t.Errorf("told before the peer has said anything: %+v", status)
	}
	testkit.SetCondition(&shadow.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonVolumeMade)
	shadow.Status.Phase = string(corev1.ClaimBound)
	shadow.Status.Capacity, shadow.Status.SnapshotTime = new(resource.MustParse("1Gi")), new(metav1.NewTime(testkit.Noon))
	if err := w.turin.Client.Status().Update(t.Context(), shadow); err != nil {
		t.Fatal(err)
	}
	w.snap()
	want := &snapshotv1.VolumeSnapshotContentStatus{
		ReadyToUse: new(true), SnapshotHandle: new("turin/shop/" + shadowSnapshot), RestoreSize: new(int64(1 << 30)),
		CreationTime: new(testkit.Noon.UnixNano()),
	}
	if diff := cmp.Diff(want, w.content().Status); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if err := w.turin.Client.Delete(t.Context(), shadow); err != nil {
		t.Fatal(err)
	}
	w.snap()
	if got := w.content().Status; *got.ReadyToUse || got.Error == nil || w.hasShadowOf(shadowSnapshot) {
		t.Errorf("of one that the peer has lost is told %+v", got)
	}
}

func TestWhyThereIsNoSnapshotIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*snapshotv1.VolumeSnapshotContent)
		prepare func(*world)
		want    string
	}{
		"the volume is gone": {
			func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.Source.VolumeHandle = new("turin/shop/pvc-other") }, nil,
			"the volume that it is to be taken of is gone",
		},
		"the peer does not know of snapshots": {nil, func(w *world) {
			w.Away.Refuse("create ShadowClaim", apierrors.NewBadRequest("unknown field spec.snapshotOf"))
		}, "unknown field"},
		"the peer cannot": {nil, func(w *world) {
			w.snap()
			shadow := w.shadowOf(shadowSnapshot)
			shadow.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonVolumeRefused, Message: "it takes none",
			}}
			if err := w.turin.Client.Status().Update(w.Context(), shadow); err != nil {
				w.Fatal(err)
			}
		}, `peer "turin": it takes none`},
		"it was there, by its handle": {
			func(c *snapshotv1.VolumeSnapshotContent) {
				c.Spec.Source = snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: new("turin/shop/snapshot-old")}
			}, nil, `peer "turin" has nothing of it any more`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := snapshotWorld(t, test.change)
			if test.prepare != nil {
				test.prepare(w)
			}
			w.snap()
			status := w.content().Status
			if status == nil || status.Error == nil || *status.ReadyToUse || !strings.Contains(*status.Error.Message, test.want) {
				t.Errorf("told %+v, want %q", status, test.want)
			}
			w.Home.Refuse("patch/status", apierrors.NewBadRequest("told again"))
			w.snap()
		})
	}
}

func TestASnapshotGoesWithItsContent(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*snapshotv1.VolumeSnapshotContent)
		kept   bool
	}{
		"by policy Delete": {nil, false},
		"and stays by policy Retain": {func(c *snapshotv1.VolumeSnapshotContent) {
			c.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := snapshotWorld(t, test.change)
			w.snap()
			if err := w.Home.Client.Delete(t.Context(), w.content()); err != nil {
				t.Fatal(err)
			}
			w.snap()
			if w.Home.Find(&snapshotv1.VolumeSnapshotContent{}, "", contentName) || w.hasShadowOf(shadowSnapshot) != test.kept {
				t.Errorf("at the peer it is kept: %t", w.hasShadowOf(shadowSnapshot))
			}
		})
	}
}

func TestSnapshotsOfOtherDriversAreLeftAlone(t *testing.T) {
	w := snapshotWorld(t, func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.Driver = "other.example.com" })
	w.snap()
	if w.hasShadowOf(shadowSnapshot) || w.content().Status != nil {
		t.Error("something was done with it")
	}
}

// restored is a claim that is to begin as a copy of VolumeSnapshot monday.
func restored(node string) *corev1.PersistentVolumeClaim {
	made := claim(node)
	made.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: "monday"}
	return made
}

// monday is the VolumeSnapshot, with its content.
func monday(ready bool, change func(*snapshotv1.VolumeSnapshotContent)) []client.Object {
	made := content()
	if change != nil {
		change(made)
	}
	return []client.Object{made, &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "monday", UID: "uid-monday"},
		Status:     &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: new(contentName), ReadyToUse: &ready},
	}}
}

// Wherever the scheduler has sent the first pod, or before it has sent it anywhere.
func TestAVolumeOfASnapshotIsMadeWhereTheSnapshotIs(t *testing.T) {
	for _, node := range []string{"", "worker", "hanse-turin"} {
		w := newWorld(t, append(monday(true, nil), restored(node))...)
		w.provision()
		if got := w.shadow().Spec.DataSource; got != shadowSnapshot {
			t.Errorf("with node %q it begins with %q", node, got)
		}
		w.answer(metav1.ConditionTrue, "")
		w.provision()
		if !w.hasVolume(volume) {
			t.Errorf("with node %q there is no volume", node)
		}
	}
}

func TestAVolumeThatCannotBeginWithItsSourceIsRefused(t *testing.T) {
	of := func(group, kind string) *corev1.PersistentVolumeClaim {
		made := claim("")
		made.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: kind, Name: "monday"}
		return made
	}
	elsewhere := restored("")
	elsewhere.Spec.DataSourceRef.Namespace = new("other")
	for name, test := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"a snapshot that is not there":  {[]client.Object{restored("")}, `there is no VolumeSnapshot "monday"`},
		"a snapshot that is not ready":  {append(monday(false, nil), restored("")), "not ready to use yet"},
		"a claim":                       {[]client.Object{of("", "PersistentVolumeClaim")}, "a copy of a PersistentVolumeClaim"},
		"a snapshot of a namespace":     {append(monday(true, nil), elsewhere), "of another namespace"},
		"a snapshot of another driver":  {append(monday(true, func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.Driver = "x.example" }), restored("")), "of driver x.example"},
		"the content of another's data": {append(monday(true, func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.VolumeSnapshotRef.UID = "other" }), restored("")), "the content of another one"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.objects...)
			w.provision()
			if w.hasShadow() {
				t.Error("the peer was asked for one")
			}
			w.ExpectEventWith(v1alpha1.ReasonVolumeRefused, test.want)
		})
	}
}
