package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// folder holds all volumes of a node, below its /var/lib.
const folder = "volumes"

// directories are the volumes on the disks of the nodes.
type directories struct {
	disks map[string]string // node → where its /var/lib lies on this machine
}

var errNoDisk = errors.New("the node has no disk of the testbed")

// Provision implements controller.Provisioner.
func (d *directories) Provision(
	_ context.Context, o controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	disk, ok := d.disks[o.SelectedNodeName]
	if !ok {
		return nil, controller.ProvisioningReschedule, fmt.Errorf("make volume on node %q: %w", o.SelectedNodeName, errNoDisk)
	}
	dir := filepath.Join(disk, folder, o.PVName)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // containers run as other users
		return nil, controller.ProvisioningFinished, err
	}
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // of any user, whatever the mask says
		return nil, controller.ProvisioningFinished, err
	}
	return volumeOf(o), controller.ProvisioningFinished, nil
}

func volumeOf(o controller.ProvisionOptions) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			VolumeMode:                    o.PVC.Spec.VolumeMode,
			MountOptions:                  o.StorageClass.MountOptions,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: path.Join("/var/lib", folder, o.PVName)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{o.SelectedNodeName},
				}},
			}}}},
		},
	}
}

// Delete implements controller.Provisioner. The name is unique, so no other volume is lost.
func (d *directories) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	var errs []error
	for _, disk := range d.disks {
		errs = append(errs, os.RemoveAll(filepath.Join(disk, folder, volume.Name)))
	}
	return errors.Join(errs...)
}
