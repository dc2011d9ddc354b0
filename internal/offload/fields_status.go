package offload

import "slices"

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
