// SPDX-License-Identifier: Apache-2.0

package kube

const (
	provisionerUser = "system:provisioner"
	driver          = "testbed.hanse.dev/local" // as the provisioner calls itself
)

// storage lists what makes volumes of the workers' disks the ones that claims get by default.
func storage() []Object {
	const name = "local"
	return []Object{
		clusterRole("testbed:provisioner",
			rule("", "get,list,watch,create,patch,update,delete", "persistentvolumes"),
			rule("", "get,list,watch,update", "persistentvolumeclaims"),
			rule("", "patch", "persistentvolumeclaims/status"),
			rule("", "create,patch,update", "events"),
			rule("storage.k8s.io", "get,list,watch", "storageclasses")),
		clusterRoleBinding("testbed:provisioner", "testbed:provisioner", provisionerUser),
		{
			Path: "/apis/storage.k8s.io/v1/storageclasses/" + name,
			Body: object{
				"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
				"metadata": object{
					"name": name, "annotations": object{"storageclass.kubernetes.io/is-default-class": "true"},
				},
				"provisioner": driver, "reclaimPolicy": "Delete",
				"volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
			},
		},
	}
}
