// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotfake "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/fake"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const node = "lubeck-worker-1"

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// world is a cluster with a claim "data", whose volume pvc-0 has 1 GiB, a default class of ours and one of another driver.
type world struct {
	t    *testing.T
	disk string
	api  *snapshotfake.Clientset
	*snapshotter
}

func newWorld(t *testing.T) *world {
	t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "pvc-0", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": name},
	}}
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	core := fake.NewClientset(claimOf("data", "pvc-0"), claimOf("foreign", "pv-1"), claimOf("pending", ""), volume,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}})
	api := snapshotfake.NewSimpleClientset(
		&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "csi", Annotations: map[string]string{defaultClass: "true"}}, Driver: "csi.example"},
		&snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "local", Annotations: map[string]string{defaultClass: "true"}},
			Driver:     name, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		},
		&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Driver: name, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain},
	)
	disk := t.TempDir()
	made := &directories{disks: map[string]string{"lubeck-worker-2": t.TempDir(), node: disk}, snapshots: api.SnapshotV1()}
	w := &world{t: t, disk: disk, api: api, snapshotter: &snapshotter{
		volumes: core.CoreV1(), snapshots: api.SnapshotV1(), made: made, now: func() time.Time { return noon },
	}}
	w.write("volumes/pvc-0/sub/file", "old")
	return w
}

func claimOf(name, volume string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
	claim.Spec.VolumeName = volume
	if volume != "" {
		claim.Status.Phase = corev1.ClaimBound
	}
	return claim
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(file, text string) {
	w.t.Helper()
	file = filepath.Join(w.disk, file)
	w.must(os.MkdirAll(filepath.Dir(file), 0o755))
	w.must(os.WriteFile(file, []byte(text), 0o640))
}

func (w *world) expectFile(dir, file, want string) {
	w.t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil || string(got) != want {
		w.t.Errorf("%s has %q, %v; want %q", file, got, err, want)
	}
}

func (w *world) expectGone(path string) {
	w.t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		w.t.Errorf("%s is there: %v", path, err)
	}
}

// snapshot makes a VolumeSnapshot of a claim, of the class that is named or of none.
func (w *world) snapshot(claim, class string) *snapshotv1.VolumeSnapshot {
	w.t.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "monday", Namespace: "shop", UID: "u1"}}
	snapshot.Spec.Source.PersistentVolumeClaimName = &claim
	if class != "" {
		snapshot.Spec.VolumeSnapshotClassName = &class
	}
	made, err := w.snapshots.VolumeSnapshots("shop").Create(w.t.Context(), snapshot, metav1.CreateOptions{})
	w.must(err)
	return made
}

func (w *world) content() *snapshotv1.VolumeSnapshotContent {
	w.t.Helper()
	content, err := w.snapshots.VolumeSnapshotContents().Get(w.t.Context(), "snapcontent-u1", metav1.GetOptions{})
	w.must(err)
	return content
}

// taken is the content of a snapshot of the claim data that was taken.
func (w *world) taken(class string) *snapshotv1.VolumeSnapshotContent {
	w.t.Helper()
	w.must(w.prepare(w.t.Context(), w.snapshot("data", class)))
	w.must(w.serve(w.t.Context(), w.content()))
	return w.content()
}

func TestASnapshotGetsTheContentThatTheControllerLooksFor(t *testing.T) {
	w := newWorld(t)
	w.must(w.prepare(t.Context(), w.snapshot("data", "")))
	want := snapshotv1.VolumeSnapshotContentSpec{
		VolumeSnapshotRef: corev1.ObjectReference{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshot", Namespace: "shop", Name: "monday", UID: "u1"},
		Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("pvc-0")},
		Driver:            name, VolumeSnapshotClassName: new("local"), DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	if diff := cmp.Diff(want, w.content().Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	told, err := w.snapshots.VolumeSnapshots("shop").Get(t.Context(), "monday", metav1.GetOptions{})
	if err != nil || *told.Spec.VolumeSnapshotClassName != "local" {
		t.Errorf("its class is %v, %v", told.Spec.VolumeSnapshotClassName, err)
	}
	w.must(w.prepare(t.Context(), told)) // once more changes nothing
}

func TestSnapshotsOfOthersAreLeftAlone(t *testing.T) {
	for _, test := range []struct{ name, claim, class string }{
		{"a class of another driver", "data", "csi"},
		{"a class that does not exist", "data", "none"},
		{"a volume of somebody else", "foreign", "local"},
		{"a claim without a volume yet", "pending", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.must(w.prepare(t.Context(), w.snapshot(test.claim, test.class)))
			_, err := w.snapshots.VolumeSnapshotContents().Get(t.Context(), "snapcontent-u1", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("it has a content: %v", err)
			}
		})
	}
}

func TestASnapshotIsACopyOfThatMoment(t *testing.T) {
	w := newWorld(t)
	w.must(os.Symlink("sub/file", filepath.Join(w.disk, "volumes/pvc-0/link")))
	if os.Geteuid() == 0 {
		w.must(os.Chown(filepath.Join(w.disk, "volumes/pvc-0/sub/file"), 1234, 1234))
	}
	w.write("snapshots/snapcontent-u1.unfinished/half", "a copy that was killed")
	content := w.taken("local")
	want := &snapshotv1.VolumeSnapshotContentStatus{
		SnapshotHandle: new("snapcontent-u1"), ReadyToUse: new(true), RestoreSize: new(int64(1 << 30)), CreationTime: new(noon.UnixNano()),
	}
	if diff := cmp.Diff(want, content.Status); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.write("volumes/pvc-0/sub/file", "new")
	dir := filepath.Join(w.disk, "snapshots/snapcontent-u1")
	w.expectFile(dir, "link", "old")
	w.expectGone(filepath.Join(dir, "half"))
	w.expectGone(dir + ".unfinished")
	info, err := os.Stat(filepath.Join(dir, "sub/file"))
	w.must(err)
	if owner := info.Sys().(*syscall.Stat_t).Uid; info.Mode().Perm() != 0o640 || (os.Geteuid() == 0 && owner != 1234) {
		t.Errorf("mode %v, owner %d", info.Mode(), owner)
	}
	content.Status = nil // as after a kill before it was written
	w.must(w.serve(t.Context(), content))
	w.expectFile(dir, "sub/file", "old")
}

func TestWhatFailedIsSaidOnceAndTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.must(os.Rename(filepath.Join(w.disk, "volumes"), filepath.Join(w.disk, "elsewhere")))
	w.must(w.prepare(t.Context(), w.snapshot("data", "local")))
	for range 2 {
		if err := w.serve(t.Context(), w.content()); !errors.Is(err, errNoDirectory) {
			t.Fatal(err)
		}
	}
	if status := w.content().Status; *status.ReadyToUse || *status.Error.Message != "find the directory of pvc-0: it is on no disk of the testbed" {
		t.Errorf("status %+v", status)
	}
	updates := 0
	for _, action := range w.api.Actions() {
		if action.Matches("update", "volumesnapshotcontents") {
			updates++
		}
	}
	if updates != 1 {
		t.Errorf("the status was written %d times", updates)
	}
	w.must(os.Rename(filepath.Join(w.disk, "elsewhere"), filepath.Join(w.disk, "volumes")))
	w.must(w.serve(t.Context(), w.content()))
	if status := w.content().Status; !*status.ReadyToUse || status.Error != nil {
		t.Errorf("status %+v", status)
	}
}

func TestContentsThatAreNotForUs(t *testing.T) {
	w := newWorld(t)
	content := w.taken("local")
	content.Status, content.Spec.Driver = nil, "csi.example"
	before := len(w.api.Actions())
	if err := w.serve(t.Context(), content); err != nil || len(w.api.Actions()) != before {
		t.Errorf("another driver's: %v", err)
	}
	content.Spec.Driver, content.Spec.Source = name, snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: new("../../etc")}
	if err := w.serve(t.Context(), content); !errors.Is(err, errNoVolume) {
		t.Errorf("from elsewhere: %v", err)
	}
}

func TestADeletedSnapshotLosesItsDirectoryIfThePolicySaysSo(t *testing.T) {
	for _, test := range []struct {
		name, class string
		said        bool // the snapshot-controller said that the snapshot is deleted, too
		stays, free bool // the directory, the content
	}{
		{"policy Delete", "local", true, false, true},
		{"policy Retain", "kept", true, true, true},
		{"only its content is deleted", "local", false, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			content := w.taken(test.class)
			content.DeletionTimestamp, content.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/other", contentProtection}
			if test.said {
				content.Annotations = map[string]string{beingDeleted: "yes"}
			}
			_, err := w.snapshots.VolumeSnapshotContents().Update(t.Context(), content, metav1.UpdateOptions{})
			w.must(err)
			w.must(w.serve(t.Context(), content))
			dir := filepath.Join(w.disk, "snapshots/snapcontent-u1")
			if test.stays {
				w.expectFile(dir, "sub/file", "old")
			} else {
				w.expectGone(dir)
			}
			want := []string{"example.com/other"}
			if !test.free {
				want = append(want, contentProtection)
			}
			if diff := cmp.Diff(want, w.content().Finalizers); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
