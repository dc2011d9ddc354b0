package offload

import "slices"

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
	lines(kept, "only what Pod Security calls safe", "spec.securityContext.sysctls[].name"),
	lines(kept, "only types that Pod Security allows to everybody", "spec.securityContext.seLinuxOptions.type"),
	lines(kept, onlyRuntime, "spec.securityContext.seccompProfile.type", "spec.securityContext.appArmorProfile.type"),
	lines(kept, "only names of Secrets of the pod's own namespace, which are brought along", "spec.imagePullSecrets[].name"),

	lines(changed, "false: the API server of the provider is not for the pod", "spec.automountServiceAccountToken"),

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
	lines(dropped, "it speaks of taints of this cluster; those of taints that the provider offers travel", "spec.tolerations"),
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
