// SPDX-License-Identifier: Apache-2.0

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
	{"spec.volumes[].projected.sources[].configMap", "spec.volumes[].configMap"},
	{"spec.volumes[].projected.sources[].secret", "spec.volumes[].secret"},
	{"spec.securityContext.seLinuxOptions", "spec.containers[].securityContext.seLinuxOptions"},
	{"spec.securityContext.seccompProfile", "spec.containers[].securityContext.seccompProfile"},
	{"spec.securityContext.appArmorProfile", "spec.containers[].securityContext.appArmorProfile"},
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
		"spec.{restartPolicy,terminationGracePeriodSeconds,activeDeadlineSeconds,hostname,subdomain}",
		"spec.{setHostnameAsFQDN,hostnameOverride,shareProcessNamespace,enableServiceLinks,hostUsers}",
		"spec.dnsConfig.options[].{name,value}", "spec.hostAliases[].{ip,hostnames}",
		"spec.os.name", "spec.resources.{limits,requests}",
		"spec.securityContext.{runAsUser,runAsGroup,supplementalGroups,supplementalGroupsPolicy,fsGroup,fsGroupChangePolicy}",
		"spec.securityContext.seLinuxChangePolicy",
		"spec.securityContext.sysctls[].value",
	),
	lines(kept, "where a network connects the clusters, ClusterFirst becomes None with the name server and the search path of home",
		"spec.dnsPolicy"),
	lines(kept, "behind those of home, where a network connects the clusters and dnsPolicy is ClusterFirst",
		"spec.dnsConfig.searches"),
	lines(kept, "behind those of home, where a network connects the clusters and dnsPolicy is ClusterFirst; with None, an address of home "+
		"becomes the one that the provider sees", "spec.dnsConfig.nameservers"),
	lines(kept, "the provider may set it where it is open", "spec.securityContext.runAsNonRoot"),
	only(oneOf(sysctls...), "only what Pod Security calls safe", "spec.securityContext.sysctls[].name"),
	only(isName, onlyOwnSecrets, "spec.imagePullSecrets[].name"),

	checked(changed, oneOf("false"), "false: the API server of the provider is not for the pod", "spec.automountServiceAccountToken"),

	lines(dropped, alreadyScheduled,
		"spec.{nodeName,nodeSelector,affinity,topologySpreadConstraints,schedulerName,schedulingGates,schedulingGroup}",
		"spec.{priorityClassName,priority,preemptionPolicy}",
	),
	lines(dropped, "it speaks of taints of this cluster", "spec.tolerations"),
	lines(dropped, "gates are judged at home, where their controllers are", "spec.readinessGates"),
	lines(dropped, "evictions are asked for at home", "spec.evictionResponders"),
	lines(dropped, "the account is home's; variables that show its name show it there too",
		"spec.{serviceAccountName,serviceAccount}",
	),

	lines(refused, ofItsHost, "spec.{hostNetwork,hostPID,hostIPC}"),
	lines(refused, ofThisCluster, "spec.{runtimeClassName,overhead}"),
	lines(refused, deviceClaims, "spec.resourceClaims", "spec.resources.claims"),
	lines(refused, windows, "spec.securityContext.windowsOptions"),
)

const (
	homesValue     = "home's value, written down; addresses of the pod are left to the provider"
	notEphemeral   = "Kubernetes has none of it in ephemeral containers"
	onlyOwnSecrets = "only names of Secrets of the pod's own namespace, which are brought along" //nolint:gosec // no credential but a sentence
	onlyOwnObjects = "only names of objects of the pod's own namespace, which are brought along; not kube-root-ca.crt"
	orCertificates = "only names of objects of the pod's own namespace, which are brought along; for kube-root-ca.crt the pod reads " +
		"home's from the Secret with its tokens"
	nodesRequest = "the kubelet asks from its node, and could be sent to any address there"
)

// containerFields are the same for all kinds of containers, if ephemeralFields does not say otherwise.
var containerFields = slices.Concat(
	lines(kept, "",
		"spec.containers[].{name,image,imagePullPolicy,command,args,workingDir,restartPolicy,terminationMessagePath}",
		"spec.containers[].{terminationMessagePolicy,stdin,stdinOnce,tty}",
		"spec.containers[].ports[].{name,containerPort,protocol}", "spec.containers[].envFrom[].prefix",
		"spec.containers[].envFrom[].configMapRef.optional", "spec.containers[].envFrom[].secretRef.optional",
		"spec.containers[].env[].valueFrom.resourceFieldRef.{containerName,resource,divisor}",
		"spec.containers[].env[].valueFrom.configMapKeyRef.{key,optional}",
		"spec.containers[].env[].valueFrom.secretKeyRef.{key,optional}",
		"spec.containers[].env[].valueFrom.fileKeyRef.{volumeName,path,key,optional}", "spec.containers[].resources.limits",
		"spec.containers[].volumeDevices[].{name,devicePath}",
		"spec.containers[].resizePolicy[].{resourceName,restartPolicy}", "spec.containers[].restartPolicyRules[].action",
		"spec.containers[].restartPolicyRules[].exitCodes.{operator,values}",
		"spec.containers[].volumeMounts[].{name,mountPath,readOnly,recursiveReadOnly,subPath,subPathExpr,bindMountOptions}",
		"spec.containers[].livenessProbe.{initialDelaySeconds,timeoutSeconds,periodSeconds,successThreshold}",
		"spec.containers[].livenessProbe.{failureThreshold,terminationGracePeriodSeconds}",
		"spec.containers[].livenessProbe.grpc.{port,service,mode}", "spec.containers[].lifecycle.preStop.sleep.seconds",
		"spec.containers[].lifecycle.stopSignal",
		"spec.containers[].securityContext.{runAsUser,runAsGroup,runAsNonRoot,readOnlyRootFilesystem}",
		"spec.containers[].securityContext.seLinuxOptions.level",
	),
	handlerFields("spec.containers[].livenessProbe"),
	handlerFields("spec.containers[].lifecycle.preStop"),
	lines(kept, "those of the API server, such as KUBERNETES_SERVICE_HOST, are those of home where a network connects the clusters and "+
		"dnsPolicy is ClusterFirst, else empty; not if the pod sets them itself", "spec.containers[].env[].{name,value}"),
	lines(kept, "limits that stand alone are written down as requests, and the provider may ask for a least one",
		"spec.containers[].resources.requests"),
	lines(kept, "the provider sets it where it is open", "spec.containers[].securityContext.allowPrivilegeEscalation"),
	lines(kept, "and NET_RAW: nobody sends with the address of another pod; a sysctl has all users of the pod ping without it",
		"spec.containers[].securityContext.capabilities.drop"),
	only(isHarmless, "only those that container runtimes give anyway", "spec.containers[].securityContext.capabilities.add"),
	only(oneOf("Default"), "only Default", "spec.containers[].securityContext.procMount"),
	only(oneOf(selinuxTypes...), "only types that Pod Security allows to everybody", "spec.containers[].securityContext.seLinuxOptions.type"),
	only(oneOf("RuntimeDefault"), onlyRuntime,
		"spec.containers[].securityContext.seccompProfile.type", "spec.containers[].securityContext.appArmorProfile.type",
	),
	only(oneOf("None", "HostToContainer"), "only None and HostToContainer", "spec.containers[].volumeMounts[].mountPropagation"),
	only(isConfigMap, onlyOwnObjects, "spec.containers[].envFrom[].configMapRef.name"),
	only(isConfigMap, orCertificates, "spec.containers[].env[].valueFrom.configMapKeyRef.name"),
	only(isName, onlyOwnSecrets,
		"spec.containers[].envFrom[].secretRef.name", "spec.containers[].env[].valueFrom.secretKeyRef.name",
	),

	checked(changed, isReadable, homesValue,
		"spec.containers[].env[].valueFrom.fieldRef.fieldPath"),
	lines(changed, homesValue, "spec.containers[].env[].valueFrom.fieldRef.apiVersion"),

	lines(refused, "a pod in another cluster has no port of its host",
		"spec.containers[].ports[].{hostPort,hostIP}",
	),
	lines(refused, deviceClaims, "spec.containers[].resources.claims"),
	checked(refused, oneOf("false"), "true is refused: no pod has rights over a host of its provider", "spec.containers[].securityContext.privileged"),
	lines(refused, windows, "spec.containers[].securityContext.windowsOptions"),
	lines(refused, "only level and type can be chosen in another cluster",
		"spec.containers[].securityContext.seLinuxOptions.{user,role}",
	),
	lines(refused, onlyRuntime,
		"spec.containers[].securityContext.seccompProfile.localhostProfile",
		"spec.containers[].securityContext.appArmorProfile.localhostProfile",
	),
)

// handlerFields are what probes and hooks have in common.
func handlerFields(path string) []fieldLine {
	return slices.Concat(
		lines(kept, "",
			path+".exec.command",
			path+".httpGet.{path,port,scheme,protocol}", path+".httpGet.httpHeaders[].{name,value}",
			path+".tcpSocket.port",
		),
		lines(refused, nodesRequest, path+".httpGet.host", path+".tcpSocket.host"),
	)
}

// ephemeralFields are what differs in ephemeral containers. One that cannot go along is left at home, and its pod goes.
var ephemeralFields = slices.Concat(
	lines(kept, "", "spec.ephemeralContainers[].targetContainerName"),
	lines(refused, notEphemeral,
		"spec.ephemeralContainers[].{ports,resources,resizePolicy,restartPolicy,restartPolicyRules,livenessProbe}",
		"spec.ephemeralContainers[].{readinessProbe,startupProbe,lifecycle}",
	),
	checked(changed, isHarmless, "less SYS_PTRACE, which kubectl debug adds and no provider grants; others as in containers",
		"spec.ephemeralContainers[].securityContext.capabilities.add"),
)

const (
	persistent = "of persistent volumes only claims of the pod's namespace are taken along"
	mounted    = "it is reached over the network of this cluster"
)

var volumeFields = slices.Concat(
	lines(kept, "",
		"spec.volumes[].name", "spec.volumes[].image.{reference,pullPolicy}", "spec.volumes[].emptyDir.{medium,sizeLimit,mode}",
		"spec.volumes[].configMap.{defaultMode,defaultUser,optional}",
		"spec.volumes[].secret.{defaultMode,defaultUser,optional}", "spec.volumes[].downwardAPI.{defaultMode,defaultUser}",
		"spec.volumes[].downwardAPI.items[].{path,mode,user}", "spec.volumes[].downwardAPI.items[].fieldRef.apiVersion",
		"spec.volumes[].downwardAPI.items[].resourceFieldRef.{containerName,resource,divisor}",
		"spec.volumes[].projected.{defaultMode,defaultUser}",
	),
	keyFields("spec.volumes[].configMap.items[]"),
	keyFields("spec.volumes[].secret.items[]"),
	only(isConfigMap, orCertificates, "spec.volumes[].configMap.name"),
	only(isName, "that of the claim at the provider, which keeps the volume", "spec.volumes[].persistentVolumeClaim.claimName"),
	lines(kept, "", "spec.volumes[].persistentVolumeClaim.readOnly"),
	only(isName, onlyOwnSecrets,
		"spec.volumes[].secret.secretName", "spec.volumes[].projected.sources[].secret.name",
	),

	checked(changed, isShown, "files show home's namespace and UID; a label or an annotation that does not travel is refused",
		"spec.volumes[].downwardAPI.items[].fieldRef.fieldPath"),

	checked(changed, never, "a file of the Secret in which home keeps the pod's tokens; no provider gives a token of its own",
		"spec.volumes[].projected.sources[].serviceAccountToken.{audience,expirationSeconds,path,user}"),
	lines(refused, "certificates of this cluster are not taken along",
		"spec.volumes[].projected.sources[].{clusterTrustBundle,podCertificate}",
	),
	lines(refused, "it is a directory of a node of this cluster", "spec.volumes[].hostPath"),
	lines(refused, "Kubernetes has given it up",
		"spec.volumes[].{gitRepo,flocker,quobyte,storageos,photonPersistentDisk,scaleIO,glusterfs,rbd,cephfs}",
	),
	lines(refused, persistent,
		"spec.volumes[].{ephemeral,gcePersistentDisk,awsElasticBlockStore,azureDisk,cinder}",
		"spec.volumes[].{vsphereVolume,portworxVolume,fc}",
	),
	lines(refused, mounted, "spec.volumes[].{nfs,iscsi,azureFile}"),
	lines(refused, "its driver runs on the nodes of this cluster", "spec.volumes[].{csi,flexVolume}"),
)

func keyFields(path string) []fieldLine {
	return lines(kept, "", path+".{key,path,mode,user}")
}

const (
	ofTheProvider = "it names things of the provider"
	lessNodes     = "less names and addresses of nodes, and cut where it is too long"
)

var statusFields = slices.Concat(
	lines(kept, "",
		"status.conditions[].status", "status.{startTime,allocatedResources}", "status.resources.{limits,requests}",
		"status.containerStatuses[].state.waiting.reason", "status.containerStatuses[].state.running.startedAt",
		"status.containerStatuses[].state.terminated.{exitCode,signal,reason,startedAt,finishedAt,containerID}",
		"status.containerStatuses[].{ready,started,image,imageID,containerID,allocatedResources,stopSignal}",
		"status.containerStatuses[].resources.{limits,requests}",
		"status.containerStatuses[].volumeMounts[].{readOnly,recursiveReadOnly}",
		"status.containerStatuses[].user.linux.{uid,gid,supplementalGroups}",
	),
	lines(kept, "it never goes back; an end is told once it is final", "status.phase"),
	lines(kept, "those that a kubelet sets; others have their writers at home", "status.conditions[].type"),
	lines(kept, "of the provider's clock, while it is later than that of home's gates", "status.conditions[].lastTransitionTime"),
	lines(kept, lessNodes,
		"status.{reason,message}", "status.conditions[].{reason,message}", "status.containerStatuses[].state.waiting.message",
		"status.containerStatuses[].state.terminated.message",
	),
	lines(kept, "containers that the pod at home has", "status.containerStatuses[].name"),
	lines(kept, "mounts that the container at home has",
		"status.containerStatuses[].volumeMounts[].{name,mountPath}",
	),

	lines(changed, "the generation of the pod at home", "status.observedGeneration", "status.conditions[].observedGeneration"),
	lines(changed, "the address under which this cluster reaches the pod", "status.podIP", "status.podIPs[].ip"),
	lines(changed, "with those of the pods that ran before it at the provider; never less than was shown",
		"status.containerStatuses[].restartCount"),

	lines(dropped, "it is an address of the provider's node; the pod shows that of the virtual node",
		"status.{hostIP,hostIPs}",
	),
	lines(dropped, "it is a node of the provider", "status.nominatedNodeName"),
	lines(dropped, "the pod at home has its own, and Kubernetes never lets it change", "status.qosClass"),
	lines(dropped, "Kubernetes has replaced it by conditions, which are kept", "status.resize"),
	lines(dropped, "kubelets do not set it", "status.conditions[].lastProbeTime"),
	lines(dropped, ofTheProvider,
		"status.{resourceClaimStatuses,extendedResourceClaimStatus,nodeAllocatableResourceClaimStatuses,volumeHealth}",
		"status.resources.claims", "status.containerStatuses[].resources.claims",
		"status.containerStatuses[].allocatedResourcesStatus", "status.containerStatuses[].volumeMounts[].volumeStatus",
	),
)

// rootCertificates is the ConfigMap that Kubernetes puts into each namespace: in the twin namespace it is the provider's.
const rootCertificates = "kube-root-ca.crt"

// never lets nothing through.
func never(string) bool { return false }

// isName lets through what can be the name of an object.
func isName(name string) bool { return name == "" || len(validation.IsDNS1123Subdomain(name)) == 0 }

// isConfigMap lets through names of ConfigMaps that were brought to the twin namespace.
func isConfigMap(name string) bool { return name != rootCertificates && isName(name) }

// isReadable keeps the names and addresses of the provider's nodes out of the container.
func isReadable(field string) bool {
	return strings.HasPrefix(field, "metadata.") || field == "status.podIP" || field == "status.podIPs"
}

// isShown refuses labels and annotations that not every provider takes: a file would be empty in the other cluster.
func isShown(field string) bool {
	if key, ok := subscript(field, "metadata.annotations"); ok {
		return key == v1alpha1.AnnotationHomeNamespace || isTaken(key)
	}
	key, ok := subscript(field, "metadata.labels")
	return !ok || key == v1alpha1.LabelHomeUID || isTaken(key)
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
