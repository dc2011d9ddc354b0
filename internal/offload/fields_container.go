package offload

import "slices"

const (
	homesValue     = "home's value, written down; addresses of the pod are left to the provider"
	notEphemeral   = "Kubernetes has none of it in ephemeral containers"
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
	lines(kept, "only those that container runtimes give anyway", "spec.containers[].securityContext.capabilities.add"),
	lines(kept, "only Default", "spec.containers[].securityContext.procMount"),
	lines(kept, "only types that Pod Security allows to everybody", "spec.containers[].securityContext.seLinuxOptions.type"),
	lines(kept, onlyRuntime,
		"spec.containers[].securityContext.seccompProfile.type", "spec.containers[].securityContext.appArmorProfile.type"),
	lines(kept, "only None and HostToContainer", "spec.containers[].volumeMounts[].mountPropagation"),
	lines(kept, onlyOwnObjects,
		"spec.containers[].envFrom[].configMapRef.name", "spec.containers[].env[].valueFrom.configMapKeyRef.name"),
	lines(kept, "only names of Secrets of the pod's own namespace, which are brought along",
		"spec.containers[].envFrom[].secretRef.name", "spec.containers[].env[].valueFrom.secretKeyRef.name"),

	lines(changed, homesValue,
		"spec.containers[].env[].valueFrom.fieldRef.fieldPath", "spec.containers[].env[].valueFrom.fieldRef.apiVersion"),

	lines(refused, "a pod in another cluster has no port of its host",
		"spec.containers[].ports[].hostPort", "spec.containers[].ports[].hostIP"),
	lines(refused, "persistent volumes are not taken along", "spec.containers[].volumeDevices"),
	lines(refused, deviceClaims, "spec.containers[].resources.claims"),
	lines(refused, "true is refused: no pod has rights over a host of its provider", "spec.containers[].securityContext.privileged"),
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
	lines(changed, "less SYS_PTRACE, which kubectl debug adds and no provider grants; others as in containers",
		"spec.ephemeralContainers[].securityContext.capabilities.add"),
)
