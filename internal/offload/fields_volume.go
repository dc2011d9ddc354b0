package offload

import "slices"

const (
	persistent = "persistent volumes are not taken along"
	mounted    = "it is reached over the network of this cluster"
)

var volumeFields = slices.Concat(
	lines(kept, "",
		"spec.volumes[].name",
		"spec.volumes[].emptyDir.medium", "spec.volumes[].emptyDir.sizeLimit", "spec.volumes[].emptyDir.mode",
		"spec.volumes[].configMap.defaultMode", "spec.volumes[].configMap.defaultUser", "spec.volumes[].configMap.optional",
		"spec.volumes[].secret.defaultMode", "spec.volumes[].secret.defaultUser", "spec.volumes[].secret.optional",
		"spec.volumes[].downwardAPI.defaultMode", "spec.volumes[].downwardAPI.defaultUser",
		"spec.volumes[].downwardAPI.items[].path",
		"spec.volumes[].downwardAPI.items[].mode",
		"spec.volumes[].downwardAPI.items[].user",
		"spec.volumes[].downwardAPI.items[].fieldRef.apiVersion",
		"spec.volumes[].downwardAPI.items[].resourceFieldRef.containerName",
		"spec.volumes[].downwardAPI.items[].resourceFieldRef.resource",
		"spec.volumes[].downwardAPI.items[].resourceFieldRef.divisor",
		"spec.volumes[].projected.defaultMode", "spec.volumes[].projected.defaultUser",
		"spec.volumes[].projected.sources[].configMap.optional",
		"spec.volumes[].projected.sources[].secret.optional",
	),
	keyFields("spec.volumes[].configMap.items[]"),
	keyFields("spec.volumes[].secret.items[]"),
	keyFields("spec.volumes[].projected.sources[].configMap.items[]"),
	keyFields("spec.volumes[].projected.sources[].secret.items[]"),
	lines(kept, onlyOwnObjects, "spec.volumes[].configMap.name", "spec.volumes[].projected.sources[].configMap.name"),
	lines(kept, "only names of Secrets of the pod's own namespace, which are brought along",
		"spec.volumes[].secret.secretName", "spec.volumes[].projected.sources[].secret.name"),

	lines(changed, "files show home's namespace and UID; an annotation that does not travel is refused",
		"spec.volumes[].downwardAPI.items[].fieldRef.fieldPath"),

	lines(refused, "tokens of this cluster are not taken along; the one that Kubernetes adds by itself is left at home",
		"spec.volumes[].projected.sources[].serviceAccountToken"),
	lines(refused, "certificates of this cluster are not taken along",
		"spec.volumes[].projected.sources[].clusterTrustBundle", "spec.volumes[].projected.sources[].podCertificate"),
	lines(refused, "it is a directory of a node of this cluster", "spec.volumes[].hostPath"),
	lines(refused, "it would get around what the provider says about images", "spec.volumes[].image"),
	lines(refused, "Kubernetes has given it up", "spec.volumes[].gitRepo", "spec.volumes[].flocker", "spec.volumes[].quobyte",
		"spec.volumes[].storageos", "spec.volumes[].photonPersistentDisk", "spec.volumes[].scaleIO", "spec.volumes[].glusterfs",
		"spec.volumes[].rbd", "spec.volumes[].cephfs"),
	lines(refused, persistent, "spec.volumes[].persistentVolumeClaim", "spec.volumes[].ephemeral",
		"spec.volumes[].gcePersistentDisk", "spec.volumes[].awsElasticBlockStore", "spec.volumes[].azureDisk",
		"spec.volumes[].cinder", "spec.volumes[].vsphereVolume", "spec.volumes[].portworxVolume", "spec.volumes[].fc"),
	lines(refused, mounted, "spec.volumes[].nfs", "spec.volumes[].iscsi", "spec.volumes[].azureFile"),
	lines(refused, "its driver runs on the nodes of this cluster", "spec.volumes[].csi", "spec.volumes[].flexVolume"),
)

func keyFields(path string) []fieldLine {
	return lines(kept, "", path+".key", path+".path", path+".mode", path+".user")
}
