package offload

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// fields is the table. The tests prove each line, and that there is one for each field of the Kubernetes in go.mod.
var fields = slices.Concat(podFields, containerFields, ephemeralFields, volumeFields, statusFields)

// likes are the parts of a pod that are made of the same fields as another part. A line of their own takes precedence.
var likes = []struct{ path, like string }{
	{"spec.initContainers[]", "spec.containers[]"},
	{"spec.ephemeralContainers[]", "spec.containers[]"},
	{"spec.containers[].readinessProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].startupProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].lifecycle.postStart", "spec.containers[].lifecycle.preStop"},
	{"spec.volumes[].projected.sources[].downwardAPI.items[]", "spec.volumes[].downwardAPI.items[]"},
	{"status.initContainerStatuses[]", "status.containerStatuses[]"},
	{"status.ephemeralContainerStatuses[]", "status.containerStatuses[]"},
	{"status.containerStatuses[].lastState", "status.containerStatuses[].state"},
}

const (
	alreadyScheduled = "home's scheduler has acted upon it, and the provider's has its own nodes and rules"
	ofItsHost        = "a pod in another cluster has no part in the host's namespaces"
	ofThisCluster    = "what it names is of this cluster"
	deviceClaims     = "claims are to devices of this cluster"
	windows          = "pods of Windows are not offloaded"
	onlyRuntime      = "only RuntimeDefault: other profiles are files of a node or none at all"
)

var podFields = slices.Concat(
	lines(kept, "",
		"spec.restartPolicy",
		"spec.terminationGracePeriodSeconds",
		"spec.activeDeadlineSeconds",
		"spec.dnsPolicy",
		"spec.dnsConfig.nameservers", "spec.dnsConfig.searches", "spec.dnsConfig.options[].name", "spec.dnsConfig.options[].value",
		"spec.hostname", "spec.subdomain", "spec.setHostnameAsFQDN", "spec.hostnameOverride",
		"spec.hostAliases[].ip", "spec.hostAliases[].hostnames",
		"spec.shareProcessNamespace",
		"spec.enableServiceLinks",
		"spec.hostUsers",
		"spec.os.name",
		"spec.resources.limits", "spec.resources.requests",
		"spec.securityContext.runAsUser", "spec.securityContext.runAsGroup",
		"spec.securityContext.supplementalGroups", "spec.securityContext.supplementalGroupsPolicy",
		"spec.securityContext.fsGroup", "spec.securityContext.fsGroupChangePolicy",
		"spec.securityContext.seLinuxOptions.level", "spec.securityContext.seLinuxChangePolicy",
		"spec.securityContext.sysctls[].value",
	),
	lines(kept, "the provider may set it where it is open", "spec.securityContext.runAsNonRoot"),
	only(oneOf(sysctls...), "only what Pod Security calls safe", "spec.securityContext.sysctls[].name"),
	only(oneOf(selinuxTypes...), "only types that Pod Security allows to everybody", "spec.securityContext.seLinuxOptions.type"),
	only(oneOf("RuntimeDefault"), onlyRuntime, "spec.securityContext.seccompProfile.type", "spec.securityContext.appArmorProfile.type"),
	only(isName, onlyOwnSecrets, "spec.imagePullSecrets[].name"),

	checked(changed, oneOf("false"), "false: the API server of the provider is not for the pod", "spec.automountServiceAccountToken"),

	lines(dropped, alreadyScheduled,
		"spec.nodeName",
		"spec.nodeSelector",
		"spec.affinity",
		"spec.topologySpreadConstraints",
		"spec.schedulerName",
		"spec.schedulingGates",
		"spec.schedulingGroup",
		"spec.priorityClassName", "spec.priority", "spec.preemptionPolicy",
	),
	lines(dropped, "it speaks of taints of this cluster", "spec.tolerations"),
	lines(dropped, "gates are judged at home, where their controllers are", "spec.readinessGates"),
	lines(dropped, "evictions are asked for at home", "spec.evictionResponders"),
	lines(dropped, "the account is home's; variables that show its name show it there too",
		"spec.serviceAccountName", "spec.serviceAccount"),

	lines(refused, ofItsHost, "spec.hostNetwork", "spec.hostPID", "spec.hostIPC"),
	lines(refused, ofThisCluster, "spec.runtimeClassName", "spec.overhead"),
	lines(refused, deviceClaims, "spec.resourceClaims", "spec.resources.claims"),
	lines(refused, windows, "spec.securityContext.windowsOptions"),
	lines(refused, "only level and type can be chosen in another cluster",
		"spec.securityContext.seLinuxOptions.user", "spec.securityContext.seLinuxOptions.role"),
	lines(refused, onlyRuntime,
		"spec.securityContext.seccompProfile.localhostProfile", "spec.securityContext.appArmorProfile.localhostProfile"),
)

const (
	homesValue     = "home's value, written down; addresses of the pod are left to the provider"
	notEphemeral   = "Kubernetes has none of it in ephemeral containers"
	onlyOwnSecrets = "only names of Secrets of the pod's own namespace, which are brought along" //nolint:gosec // no credential but a sentence
	onlyOwnObjects = "only names of objects of the pod's own namespace, which are brought along; not kube-root-ca.crt"
	nodesRequest   = "the kubelet asks from its node, and could be sent to any address there"
)

// containerFields are the same for all kinds of containers, if ephemeralFields does not say otherwise.
var containerFields = slices.Concat(
	lines(kept, "",
		"spec.containers[].name",
		"spec.containers[].image",
		"spec.containers[].imagePullPolicy",
		"spec.containers[].command",
		"spec.containers[].args",
		"spec.containers[].workingDir",
		"spec.containers[].ports[].name", "spec.containers[].ports[].containerPort", "spec.containers[].ports[].protocol",
		"spec.containers[].envFrom[].prefix",
		"spec.containers[].envFrom[].configMapRef.optional",
		"spec.containers[].envFrom[].secretRef.optional",
		"spec.containers[].env[].name",
		"spec.containers[].env[].value",
		"spec.containers[].env[].valueFrom.resourceFieldRef.containerName",
		"spec.containers[].env[].valueFrom.resourceFieldRef.resource",
		"spec.containers[].env[].valueFrom.resourceFieldRef.divisor",
		"spec.containers[].env[].valueFrom.configMapKeyRef.key", "spec.containers[].env[].valueFrom.configMapKeyRef.optional",
		"spec.containers[].env[].valueFrom.secretKeyRef.key", "spec.containers[].env[].valueFrom.secretKeyRef.optional",
		"spec.containers[].env[].valueFrom.fileKeyRef.volumeName",
		"spec.containers[].env[].valueFrom.fileKeyRef.path",
		"spec.containers[].env[].valueFrom.fileKeyRef.key",
		"spec.containers[].env[].valueFrom.fileKeyRef.optional",
		"spec.containers[].resources.limits",
		"spec.containers[].resizePolicy[].resourceName", "spec.containers[].resizePolicy[].restartPolicy",
		"spec.containers[].restartPolicy",
		"spec.containers[].restartPolicyRules[].action",
		"spec.containers[].restartPolicyRules[].exitCodes.operator",
		"spec.containers[].restartPolicyRules[].exitCodes.values",
		"spec.containers[].volumeMounts[].name",
		"spec.containers[].volumeMounts[].mountPath",
		"spec.containers[].volumeMounts[].readOnly", "spec.containers[].volumeMounts[].recursiveReadOnly",
		"spec.containers[].volumeMounts[].subPath", "spec.containers[].volumeMounts[].subPathExpr",
		"spec.containers[].volumeMounts[].bindMountOptions",
		"spec.containers[].livenessProbe.initialDelaySeconds",
		"spec.containers[].livenessProbe.timeoutSeconds",
		"spec.containers[].livenessProbe.periodSeconds",
		"spec.containers[].livenessProbe.successThreshold",
		"spec.containers[].livenessProbe.failureThreshold",
		"spec.containers[].livenessProbe.terminationGracePeriodSeconds",
		"spec.containers[].livenessProbe.grpc.port",
		"spec.containers[].livenessProbe.grpc.service",
		"spec.containers[].livenessProbe.grpc.mode",
		"spec.containers[].lifecycle.preStop.sleep.seconds",
		"spec.containers[].lifecycle.stopSignal",
		"spec.containers[].terminationMessagePath", "spec.containers[].terminationMessagePolicy",
		"spec.containers[].stdin", "spec.containers[].stdinOnce", "spec.containers[].tty",
		"spec.containers[].securityContext.runAsUser",
		"spec.containers[].securityContext.runAsGroup",
		"spec.containers[].securityContext.runAsNonRoot",
		"spec.containers[].securityContext.readOnlyRootFilesystem",
		"spec.containers[].securityContext.seLinuxOptions.level",
	),
	handlerFields("spec.containers[].livenessProbe"),
	handlerFields("spec.containers[].lifecycle.preStop"),
	lines(kept, "limits that stand alone are written down as requests, and the provider may ask for a least one",
		"spec.containers[].resources.requests"),
	lines(kept, "the provider sets it where it is open",
		"spec.containers[].securityContext.allowPrivilegeEscalation", "spec.containers[].securityContext.capabilities.drop"),
	only(isHarmless, "only those that container runtimes give anyway", "spec.containers[].securityContext.capabilities.add"),
	only(oneOf("Default"), "only Default", "spec.containers[].securityContext.procMount"),
	only(oneOf(selinuxTypes...), "only types that Pod Security allows to everybody", "spec.containers[].securityContext.seLinuxOptions.type"),
	only(oneOf("RuntimeDefault"), onlyRuntime,
		"spec.containers[].securityContext.seccompProfile.type", "spec.containers[].securityContext.appArmorProfile.type"),
	only(oneOf("None", "HostToContainer"), "only None and HostToContainer", "spec.containers[].volumeMounts[].mountPropagation"),
	only(isConfigMap, onlyOwnObjects,
		"spec.containers[].envFrom[].configMapRef.name", "spec.containers[].env[].valueFrom.configMapKeyRef.name"),
	only(isName, onlyOwnSecrets,
		"spec.containers[].envFrom[].secretRef.name", "spec.containers[].env[].valueFrom.secretKeyRef.name"),

	checked(changed, isReadable, homesValue,
		"spec.containers[].env[].valueFrom.fieldRef.fieldPath"),
	lines(changed, homesValue, "spec.containers[].env[].valueFrom.fieldRef.apiVersion"),

	lines(refused, "a pod in another cluster has no port of its host",
		"spec.containers[].ports[].hostPort", "spec.containers[].ports[].hostIP"),
	lines(refused, "persistent volumes are not taken along", "spec.containers[].volumeDevices"),
	lines(refused, deviceClaims, "spec.containers[].resources.claims"),
	checked(refused, oneOf("false"), "true is refused: no pod has rights over a host of its provider", "spec.containers[].securityContext.privileged"),
	lines(refused, windows, "spec.containers[].securityContext.windowsOptions"),
	lines(refused, "only level and type can be chosen in another cluster",
		"spec.containers[].securityContext.seLinuxOptions.user", "spec.containers[].securityContext.seLinuxOptions.role"),
	lines(refused, onlyRuntime,
		"spec.containers[].securityContext.seccompProfile.localhostProfile",
		"spec.containers[].securityContext.appArmorProfile.localhostProfile"),
)

// handlerFields are what probes and hooks have in common.
func handlerFields(path string) []fieldLine {
	return slices.Concat(
		lines(kept, "",
			path+".exec.command",
			path+".httpGet.path", path+".httpGet.port", path+".httpGet.scheme", path+".httpGet.protocol",
			path+".httpGet.httpHeaders[].name", path+".httpGet.httpHeaders[].value",
			path+".tcpSocket.port",
		),
		lines(refused, nodesRequest, path+".httpGet.host", path+".tcpSocket.host"),
	)
}

// ephemeralFields are what differs in ephemeral containers. One that cannot go along is left at home, and its pod goes.
var ephemeralFields = slices.Concat(
	lines(kept, "", "spec.ephemeralContainers[].targetContainerName"),
	lines(refused, notEphemeral,
		"spec.ephemeralContainers[].ports",
		"spec.ephemeralContainers[].resources",
		"spec.ephemeralContainers[].resizePolicy",
		"spec.ephemeralContainers[].restartPolicy", "spec.ephemeralContainers[].restartPolicyRules",
		"spec.ephemeralContainers[].livenessProbe",
		"spec.ephemeralContainers[].readinessProbe",
		"spec.ephemeralContainers[].startupProbe",
		"spec.ephemeralContainers[].lifecycle",
	),
	checked(changed, isHarmless, "less SYS_PTRACE, which kubectl debug adds and no provider grants; others as in containers",
		"spec.ephemeralContainers[].securityContext.capabilities.add"),
)

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
	only(isConfigMap, onlyOwnObjects, "spec.volumes[].configMap.name", "spec.volumes[].projected.sources[].configMap.name"),
	only(isName, onlyOwnSecrets,
		"spec.volumes[].secret.secretName", "spec.volumes[].projected.sources[].secret.name"),

	checked(changed, isShown, "files show home's namespace and UID; an annotation that does not travel is refused",
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

const (
	ofTheProvider = "it names things of the provider"
	lessNodes     = "less names and addresses of nodes, and cut where it is too long"
)

var statusFields = slices.Concat(
	lines(kept, "",
		"status.conditions[].status",
		"status.startTime",
		"status.allocatedResources", "status.resources.limits", "status.resources.requests",
		"status.containerStatuses[].state.waiting.reason",
		"status.containerStatuses[].state.running.startedAt",
		"status.containerStatuses[].state.terminated.exitCode",
		"status.containerStatuses[].state.terminated.signal",
		"status.containerStatuses[].state.terminated.reason",
		"status.containerStatuses[].state.terminated.startedAt",
		"status.containerStatuses[].state.terminated.finishedAt",
		"status.containerStatuses[].state.terminated.containerID",
		"status.containerStatuses[].ready",
		"status.containerStatuses[].started",
		"status.containerStatuses[].image", "status.containerStatuses[].imageID", "status.containerStatuses[].containerID",
		"status.containerStatuses[].allocatedResources",
		"status.containerStatuses[].resources.limits", "status.containerStatuses[].resources.requests",
		"status.containerStatuses[].volumeMounts[].readOnly", "status.containerStatuses[].volumeMounts[].recursiveReadOnly",
		"status.containerStatuses[].user.linux.uid",
		"status.containerStatuses[].user.linux.gid",
		"status.containerStatuses[].user.linux.supplementalGroups",
		"status.containerStatuses[].stopSignal",
	),
	lines(kept, "it never goes back; an end is told once it is final", "status.phase"),
	lines(kept, "those that a kubelet sets; others have their writers at home", "status.conditions[].type"),
	lines(kept, "of the provider's clock, while it is later than that of home's gates", "status.conditions[].lastTransitionTime"),
	lines(kept, lessNodes,
		"status.reason", "status.message",
		"status.conditions[].reason", "status.conditions[].message",
		"status.containerStatuses[].state.waiting.message", "status.containerStatuses[].state.terminated.message"),
	lines(kept, "containers that the pod at home has", "status.containerStatuses[].name"),
	lines(kept, "mounts that the container at home has",
		"status.containerStatuses[].volumeMounts[].name", "status.containerStatuses[].volumeMounts[].mountPath"),

	lines(changed, "the generation of the pod at home", "status.observedGeneration", "status.conditions[].observedGeneration"),
	lines(changed, "the address under which this cluster reaches the pod", "status.podIP", "status.podIPs[].ip"),
	lines(changed, "with those of the pods that ran before it at the provider; never less than was shown",
		"status.containerStatuses[].restartCount"),

	lines(dropped, "it is an address of the provider's node; the pod shows that of the virtual node", "status.hostIP", "status.hostIPs"),
	lines(dropped, "it is a node of the provider", "status.nominatedNodeName"),
	lines(dropped, "the pod at home has its own, and Kubernetes never lets it change", "status.qosClass"),
	lines(dropped, "Kubernetes has replaced it by conditions, which are kept", "status.resize"),
	lines(dropped, "kubelets do not set it", "status.conditions[].lastProbeTime"),
	lines(dropped, ofTheProvider,
		"status.resourceClaimStatuses",
		"status.extendedResourceClaimStatus",
		"status.nodeAllocatableResourceClaimStatuses",
		"status.volumeHealth",
		"status.resources.claims",
		"status.containerStatuses[].resources.claims",
		"status.containerStatuses[].allocatedResourcesStatus",
		"status.containerStatuses[].volumeMounts[].volumeStatus"),
)

// rootCertificates is the ConfigMap that Kubernetes puts into each namespace: in the twin namespace it is the provider's.
const rootCertificates = "kube-root-ca.crt"

// isName lets through what can be the name of an object.
func isName(name string) bool { return name == "" || len(validation.IsDNS1123Subdomain(name)) == 0 }

// isConfigMap lets through names of ConfigMaps that were brought to the twin namespace.
func isConfigMap(name string) bool { return name != rootCertificates && isName(name) }

// isReadable keeps the names and addresses of the provider's nodes out of the container.
func isReadable(field string) bool {
	return strings.HasPrefix(field, "metadata.") || field == "status.podIP" || field == "status.podIPs"
}

// isShown refuses annotations that do not travel: a file would be empty in the other cluster.
func isShown(field string) bool {
	key, ok := subscript(field, "metadata.annotations")
	return !ok || key == v1alpha1.AnnotationHomeNamespace || annotationTravels(key)
}

// harmless are the capabilities that container runtimes give anyway, and that Pod Security "baseline" lets a pod name.
var harmless = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
	"SETPCAP", "SETUID", "SYS_CHROOT",
}

func isHarmless(capability string) bool { return slices.Contains(harmless, capability) }

var selinuxTypes = []string{"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

// sysctls are those that Pod Security "baseline" calls safe: each belongs to the pod's own namespaces.
var sysctls = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ping_group_range",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_syncookies",
}

func oneOf(values ...string) func(string) bool {
	return func(value string) bool { return slices.Contains(values, value) }
}
