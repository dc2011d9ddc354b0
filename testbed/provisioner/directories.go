// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"

	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// What a node has below its /var/lib.
const (
	volumesFolder   = "volumes"
	snapshotsFolder = "snapshots"
)

// directories are the volumes on the disks of the nodes, and their snapshots.
type directories struct {
	disks     map[string]string                  // node → where its /var/lib lies on this machine
	snapshots snapshotclient.SnapshotV1Interface // nil where there are none
}

var (
	errNoDisk      = errors.New("the node has no disk of the testbed")
	errNoDirectory = errors.New("it is on no disk of the testbed")
)

// Provision implements controller.Provisioner.
func (d *directories) Provision(
	ctx context.Context, o controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	disk, ok := d.disks[o.SelectedNodeName]
	if !ok {
		return nil, controller.ProvisioningReschedule, fmt.Errorf("make volume on node %q: %w", o.SelectedNodeName, errNoDisk)
	}
	if err := d.fill(ctx, o.PVC, filepath.Join(disk, volumesFolder, o.PVName)); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return volumeOf(o), controller.ProvisioningFinished, nil
}

// fill makes the directory of a volume with what its claim begins from.
func (d *directories) fill(ctx context.Context, claim *corev1.PersistentVolumeClaim, dir string) error {
	if claim.Spec.DataSourceRef != nil {
		from, err := d.source(ctx, claim)
		if err != nil {
			return fmt.Errorf("begin from %s %q: %w", claim.Spec.DataSourceRef.Kind, claim.Spec.DataSourceRef.Name, err)
		}
		return duplicate(ctx, from, dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // containers run as other users
		return err
	}
	return os.Chmod(dir, 0o777) //nolint:gosec // of any user, whatever the mask says
}

// duplicate copies a directory with modes and owners, once. A copy that was not finished does not have its name.
func duplicate(ctx context.Context, from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.RemoveAll(to+unfinished)); err != nil { //nolint:gosec // as above
		return err
	}
	copying := exec.CommandContext(ctx, "cp", "-a", from, to+unfinished)   //nolint:gosec // our own names
	copying.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // or it would disturb the one of our successor
	if said, err := copying.CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", filepath.Base(from), err, said)
	}
	return os.Rename(to+unfinished, to)
}

// unfinished is at the end of the name of a copy until it is complete.
const unfinished = ".unfinished"

// find tells on which disk a directory is.
func (d *directories) find(folder, name string) (disk string, err error) {
	for _, disk := range d.disks {
		if _, err := os.Stat(filepath.Join(disk, folder, name)); err == nil {
			return disk, nil
		}
	}
	return "", fmt.Errorf("find the directory of %s: %w", name, errNoDirectory)
}

// remove removes a directory from the disks. The name is unique, so no other is lost.
func (d *directories) remove(folder, name string) error {
	var errs []error
	for _, disk := range d.disks {
		dir := filepath.Join(disk, folder, name)
		errs = append(errs, os.RemoveAll(dir), os.RemoveAll(dir+unfinished))
	}
	return errors.Join(errs...)
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
				Local: &corev1.LocalVolumeSource{Path: path.Join("/var/lib", volumesFolder, o.PVName)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{o.SelectedNodeName},
				}},
			}}}},
		},
	}
}

// Delete implements controller.Provisioner.
func (d *directories) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	return d.remove(volumesFolder, volume.Name)
}
