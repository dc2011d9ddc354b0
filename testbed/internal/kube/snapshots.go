// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"path/filepath"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

const snapshotGroup = "snapshot.storage.k8s.io"

// Definition is a CustomResourceDefinition as its own project has written it, and the path that it is found at.
type Definition struct {
	Path, File string
}

// Definitions lists those that a cluster has from the start.
func Definitions(c *plan.Cluster) []Definition {
	if !c.HasSnapshots() {
		return nil
	}
	var definitions []Definition
	for _, kind := range []string{"volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"} {
		definitions = append(definitions, Definition{
			Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + kind + "." + snapshotGroup,
			File: filepath.Join(c.SnapshotDefinitions(), snapshotGroup+"_"+kind+".yaml"),
		})
	}
	return definitions
}

// snapshots lists what lets the provisioner take snapshots of its volumes, and the snapshot-controller bind them.
func snapshots() []Object {
	const controllerRole = "testbed:snapshot-controller"
	return []Object{
		clusterRole("testbed:provisioner-snapshots",
			rule(snapshotGroup, "get,list,watch,patch", "volumesnapshots"),
			rule(snapshotGroup, "list", "volumesnapshotclasses"),
			rule(snapshotGroup, "get,list,watch,create,update", "volumesnapshotcontents"),
			rule(snapshotGroup, "update", "volumesnapshotcontents/status")),
		clusterRoleBinding("testbed:provisioner-snapshots", "testbed:provisioner-snapshots", provisionerUser),
		clusterRole(controllerRole,
			rule("", "get,list,watch", "persistentvolumes"),
			rule("", "get,list,watch,update", "persistentvolumeclaims"),
			rule("", "create,patch,update", "events"),
			rule(snapshotGroup, "get,list,watch", "volumesnapshotclasses"),
			rule(snapshotGroup, "create,get,list,watch,update,patch,delete", "volumesnapshotcontents"),
			rule(snapshotGroup, "patch", "volumesnapshotcontents/status"),
			rule(snapshotGroup, "get,list,watch,update,patch", "volumesnapshots"),
			rule(snapshotGroup, "update,patch", "volumesnapshots/status")),
		clusterRoleBinding(controllerRole, controllerRole, "system:snapshot-controller"),
	}
}

// Defined lists the objects of kinds that Definitions defines: the class of snapshots whose name users may leave out.
func Defined(c *plan.Cluster) []Object {
	if !c.HasSnapshots() {
		return nil
	}
	const name = "local"
	return []Object{{
		Path: "/apis/" + snapshotGroup + "/v1/volumesnapshotclasses/" + name,
		Body: object{
			"apiVersion": snapshotGroup + "/v1", "kind": "VolumeSnapshotClass",
			"metadata": object{
				"name": name, "annotations": object{"snapshot.storage.kubernetes.io/is-default-class": "true"},
			},
			"driver": driver, "deletionPolicy": "Delete",
		},
	}}
}
