// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// claimAt is a claim whose volume is at the peer, and the volume.
func claimAt(peer, namespace, name string) []client.Object {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name)}}
	return []client.Object{claim, reflection.Volume(claim, &storagev1.StorageClass{}, peer)}
}

// claimsHere is what the peer has claimed in this cluster.
func claimsHere(peer string) []client.Object {
	return append(guest(peer)[:1], &v1alpha1.ShadowClaim{ObjectMeta: metav1.ObjectMeta{Namespace: guest(peer)[0].GetName(), Name: "pvc-1"}})
}

// claims names those that are left.
func (w *world) claims(t *testing.T) string {
	t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	if err := w.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return strings.Join(names, " ")
}

func TestUnpeerDeletesNoDataThatNobodySpokeOf(t *testing.T) {
	for name, test := range map[string]struct {
		objects []client.Object
		flags   unpeerFlags
		says    []string // none if it is fine
		left    string
	}{
		"of our claims there":               {claimAt("hamburg", "shop", "data"), unpeerFlags{}, []string{"hamburg (shop/data)", "--delete-data"}, "shop/data"},
		"also where pods are drained":       {claimAt("hamburg", "shop", "data"), unpeerFlags{drain: "now"}, []string{"shop/data"}, "shop/data"},
		"of its claims here":                {claimsHere("hamburg"), unpeerFlags{}, []string{"hamburg has 1 claims"}, ""},
		"of both":                           {append(claimsHere("hamburg"), claimAt("hamburg", "shop", "data")...), unpeerFlags{}, []string{"shop/data", "1 claims"}, "shop/data"},
		"but that it may be lost":           {append(claimsHere("hamburg"), claimAt("hamburg", "shop", "data")...), unpeerFlags{deleteData: true}, nil, ""},
		"but what force leaves there":       {claimAt("hamburg", "shop", "data"), unpeerFlags{force: true}, nil, "shop/data"},
		"nor any that is at another peer":   {append(claimsHere("bremen"), claimAt("bremen", "shop", "data")...), unpeerFlags{deleteData: true}, nil, "shop/data"},
		"and none stands in the way of all": {claimAt("bremen", "shop", "data"), unpeerFlags{}, nil, "shop/data"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(test.objects, newPeer("hamburg", v1alpha1.RoleProvider, v1alpha1.RoleConsumer))...)
			_, told, err := w.unpeer(t, soon(t), &test.flags)
			if errors.Is(err, errDataLost) != (len(test.says) > 0) {
				t.Fatalf("error %v", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if _, err = readPeer(t.Context(), w.client, "hamburg"); (err == nil) != (len(test.says) > 0) {
				t.Errorf("the Peer: %v", err)
			}
			if diff := cmp.Diff(test.left, w.claims(t)); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
			if deletes := test.flags.deleteData && test.left == ""; deletes != strings.Contains(told, "Deleting the claims shop/data") {
				t.Errorf("the user is told %q", told)
			}
		})
	}
}

func TestSnapshotsAreDataToo(t *testing.T) {
	w := newWorld(t, newPeer("hamburg", v1alpha1.RoleProvider), &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-1"},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: v1alpha1.VolumesDriver, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("hamburg/shop/pvc-1")},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "shop", Name: "monday", UID: "u-1"},
		},
	}, &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "monday", UID: "u-1"}})
	if _, _, err := w.unpeer(t, soon(t), &unpeerFlags{}); !errors.Is(err, errDataLost) || !strings.Contains(err.Error(), "snapshot shop/monday") {
		t.Errorf("error %v", err)
	}
	if _, told, err := w.unpeer(t, soon(t), &unpeerFlags{deleteData: true}); err != nil || !strings.Contains(told, "snapshot shop/monday") {
		t.Errorf("the user is told %q, %v", told, err)
	}
	left := &snapshotv1.VolumeSnapshotList{}
	if err := w.client.List(t.Context(), left); err != nil || len(left.Items) > 0 {
		t.Errorf("left %v, %v", left.Items, err)
	}
}

func TestUnoffloadingDeletesDataOnlyIfAsked(t *testing.T) {
	objects := append(claimAt("turin", "shop", "data"), claimAt("turin", "bakery", "data")...)
	w := newWorld(t, shop(append(objects, offloadingOf("shop"))...)...)
	_, told, err := unoffloadShop(soon(t), w, unoffloadFlags{})
	if err != nil || !strings.Contains(told, "shop/data") || !strings.Contains(told, "--delete-data") || strings.Contains(told, "bakery") {
		t.Errorf("the user is told %q, %v", told, err)
	}
	if got := w.claims(t); got != "bakery/data shop/data" {
		t.Errorf("claims %q", got)
	}
	if _, told, err = unoffloadShop(soon(t), w, unoffloadFlags{deleteData: true}); err != nil || !strings.Contains(told, "Deleting the claims shop/data") {
		t.Errorf("the user is told %q, %v", told, err)
	}
	if got := w.claims(t); got != "bakery/data" {
		t.Errorf("claims %q", got)
	}
}

// The volume of a claim that is gone is there until its data is. A claim that has taken its name since is another one.
func TestAClaimOfTheSameNameIsNotDeleted(t *testing.T) {
	objects := claimAt("turin", "shop", "data")
	objects[0].SetUID("another")
	w := newWorld(t, objects...)
	deleted := 0
	w.client = interceptor.NewClient(w.client, interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			asked := (&client.DeleteOptions{}).ApplyOptions(options)
			if _, isClaim := o.(*corev1.PersistentVolumeClaim); isClaim && *asked.Preconditions.UID == "another" {
				deleted++
			}
			return apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), o.GetName(), errors.New("its UID is another one"))
		},
	})
	volumes, err := local.StoredAt(t.Context(), w.client, func(reflection.Handle) bool { return true })
	if err != nil || len(volumes) != 1 {
		t.Fatalf("volumes %v, %v", volumes, err)
	}
	if err := deleteData(t.Context(), w.client, volumes); err != nil || deleted > 0 {
		t.Errorf("%d claims were deleted: %v", deleted, err)
	}
}
