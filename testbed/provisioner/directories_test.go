// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func options(node string) controller.ProvisionOptions {
	policy := corev1.PersistentVolumeReclaimDelete
	claim := &corev1.PersistentVolumeClaim{}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return controller.ProvisionOptions{
		PVName: "pvc-1", SelectedNodeName: node, PVC: claim, StorageClass: &storagev1.StorageClass{ReclaimPolicy: &policy},
	}
}

func TestAVolumeIsADirectoryOnTheDiskOfItsNode(t *testing.T) {
	disk := t.TempDir()
	made := &directories{disks: map[string]string{"lubeck-worker-1": disk}}
	volume, state, err := made.Provision(t.Context(), options("lubeck-worker-1"))
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	if got := volume.Spec.Local.Path; got != "/var/lib/volumes/pvc-1" {
		t.Errorf("the node finds it at %s", got)
	}
	dir := filepath.Join(disk, "volumes", "pvc-1")
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Fatal(info, err)
	}
	if err := made.Delete(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestAnotherNodeIsAskedForWhereThereIsNoDisk(t *testing.T) {
	_, state, err := (&directories{}).Provision(t.Context(), options("hanse-hamburg"))
	if !errors.Is(err, errNoDisk) || state != controller.ProvisioningReschedule {
		t.Errorf("%s, %v", state, err)
	}
}
