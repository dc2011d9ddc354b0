// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var (
	inTwin = map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: "turin", v1alpha1.LabelManaged: "true",
	}
	inShop = map[string]string{"team": "shop"}
)

// confined is what every pod of a peer has.
const confined = "automountServiceAccountToken: false\n"

func TestPodsOfPeersAreGuarded(t *testing.T) {
	creates := func(spec string) review {
		return review{by: manager, in: inTwin, object: podWith(t, confined+spec)}
	}
	container := func(fields string) review {
		return creates("containers: [{name: web, image: web, " + fields + "}]")
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-pods"), map[string]decision{
		"a plain pod": {review: creates("")},
		"one with all that is allowed": {review: creates(`
serviceAccountName: default
hostUsers: false
priorityClassName: batch
securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: "1"}], runAsNonRoot: true}
tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]
volumes:
- {name: a, emptyDir: {medium: Memory}}
- {name: b, downwardAPI: {items: []}}
- {name: c, projected: {sources: [{downwardAPI: {items: []}}, {configMap: {name: c}}, {secret: {name: s}}]}}
- {name: d, configMap: {name: c}}
- {name: e, secret: {secretName: s}}
initContainers: [{name: first, image: first}]
containers:
- name: web
  image: web
  ports: [{containerPort: 80}]
  env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: PLAIN, value: x}]
  securityContext: {privileged: false, procMount: Default, capabilities: {add: [NET_BIND_SERVICE], drop: [ALL]}}
`)},

		"hostNetwork":       {review: creates("hostNetwork: true"), want: "spec.hostNetwork"},
		"hostPID":           {review: creates("hostPID: true"), want: "spec.hostPID"},
		"hostIPC":           {review: creates("hostIPC: true"), want: "spec.hostIPC"},
		"nodeName":          {review: creates("nodeName: worker-1"), want: "spec.nodeName"},
		"a system priority": {review: creates("priorityClassName: system-node-critical"), want: "spec.priorityClassName"},
		"a service account": {review: creates("serviceAccountName: builder"), want: "spec.serviceAccountName"},
		"a token of the provider": {
			review: review{by: manager, in: inTwin, object: podWith(t, "automountServiceAccountToken: true")},
			want:   "spec.automountServiceAccountToken",
		},
		"a token by default": {
			review: review{by: manager, in: inTwin, object: podWith(t, "")}, want: "spec.automountServiceAccountToken",
		},
		"runtimeClassName":     {review: creates("runtimeClassName: kata"), want: "spec.runtimeClassName"},
		"resourceClaims":       {review: creates("resourceClaims: [{name: gpu, resourceClaimName: gpu}]"), want: "spec.resourceClaims"},
		"ephemeral containers": {review: creates("ephemeralContainers: [{name: e, image: x}]"), want: "spec.ephemeralContainers"},
		"a toleration of the control plane": {
			review: creates("tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]"), want: "spec.tolerations",
		},
		"a toleration of all":           {review: creates("tolerations: [{operator: Exists}]"), want: "spec.tolerations"},
		"a toleration of virtual nodes": {review: creates("tolerations: [{key: hanse.dev/virtual-node, operator: Exists}]"), want: "spec.tolerations"},
		"an unsafe sysctl": {
			review: creates(`securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}`), want: "spec.securityContext.sysctls",
		},

		"hostPath":           {review: creates("volumes: [{name: v, hostPath: {path: /}}]"), want: "spec.volumes:"},
		"a claim":            {review: creates("volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]")},
		"csi":                {review: creates("volumes: [{name: v, csi: {driver: x}}]"), want: "spec.volumes:"},
		"a claim of its own": {review: creates("volumes: [{name: v, ephemeral: {}}]"), want: "spec.volumes:"},
		"nfs":                {review: creates("volumes: [{name: v, nfs: {server: x, path: /}}]"), want: "spec.volumes:"},
		"an image as volume": {review: creates("volumes: [{name: v, image: {reference: x}}]")},
		"a projected token": {
			review: creates("volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]"),
			want:   "spec.volumes[*].projected.sources",
		},
		"a projected certificate": {
			review: creates("volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: s}}]}}]"),
			want:   "spec.volumes[*].projected.sources",
		},

		"privileged": {
			review: container("securityContext: {privileged: true}"), want: "spec.containers[*].securityContext.privileged",
		},
		"privileged, at first": {
			review: creates("initContainers: [{name: i, image: i, securityContext: {privileged: true}}]"),
			want:   "spec.containers[*].securityContext.privileged",
		},
		"a capability": {
			review: container("securityContext: {capabilities: {add: [SYS_ADMIN]}}"),
			want:   "spec.containers[*].securityContext.capabilities.add",
		},
		"procMount": {
			review: container("securityContext: {procMount: Unmasked}"), want: "spec.containers[*].securityContext.procMount",
		},
		"hostPort": {
			review: container("ports: [{containerPort: 80, hostPort: 80}]"), want: "spec.containers[*].ports[*].hostPort",
		},
		"the name of the node": {
			review: container("env: [{name: N, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]"),
			want:   "spec.containers[*].env[*].valueFrom.fieldRef",
		},
		"the address of the node": {
			review: container("env: [{name: N, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]"),
			want:   "spec.containers[*].env[*].valueFrom.fieldRef",
		},

		"by an administrator":         {review: review{by: admin, in: inTwin, object: podWith(t, confined)}, want: "metadata.namespace"},
		"by a peer":                   {review: review{by: peer, in: inTwin, object: podWith(t, confined)}, want: "metadata.namespace"},
		"by hanse kubelet":            {review: review{by: kubelet, in: inTwin, object: podWith(t, confined)}, want: "metadata.namespace"},
		"in a namespace of our users": {review: review{by: admin, in: inShop, object: podWith(t, "hostNetwork: true")}},
	})
}

func TestChangesOfPodsOfPeersAreGuarded(t *testing.T) {
	const running = confined + "nodeName: worker-1\n"
	odd := podWith(t, "hostNetwork: true") // from before there were guard rails
	labelled := odd.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	withImage := podWith(t, running+"containers: [{name: web, image: web:2}]")
	debugged := podWith(t, running+"ephemeralContainers: [{name: e, image: x}]")
	debuggedWithImage := podWith(t, running+"containers: [{name: web, image: web:2}]\nephemeralContainers: [{name: e, image: x}]")
	shell := func(fields string) review {
		return review{
			by: manager, in: inTwin, of: "pods/ephemeralcontainers", old: podWith(t, running),
			object: podWith(t, running+"ephemeralContainers: [{name: e, image: x, "+fields+"}]"),
		}
	}
	const larger = "containers: [{name: web, image: web, resources: {requests: {cpu: 2}}}]\n"
	resize := func(spec string) review {
		return review{by: manager, in: inTwin, of: "pods/resize", old: podWith(t, running), object: podWith(t, spec)}
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-pods"), map[string]decision{
		"another image":          {review: review{by: manager, in: inTwin, old: podWith(t, running), object: withImage}},
		"by a controller":        {review: review{by: "system:serviceaccount:kube-system:generic-garbage-collector", in: inTwin, old: odd, object: labelled}},
		"its end":                {review: review{by: admin, in: inTwin, old: odd}},
		"its status":             {review: review{by: "system:node:worker-1", in: inTwin, of: "pods/status", old: odd, object: labelled}},
		"a shell added":          {review: review{by: admin, in: inTwin, of: "pods/ephemeralcontainers", old: podWith(t, running), object: debugged}, want: "spec.ephemeralContainers"},
		"a shell by the manager": {review: review{by: manager, in: inTwin, of: "pods/ephemeralcontainers", old: podWith(t, running), object: debugged}},
		"a shell in the plain way": {
			review: review{by: admin, in: inTwin, old: podWith(t, running), object: debugged}, want: "spec.ephemeralContainers",
		},
		"another image after it": {review: review{by: admin, in: inTwin, old: debugged, object: debuggedWithImage}},
		"a shell taken off":      {review: review{by: admin, in: inTwin, of: "pods/ephemeralcontainers", old: debugged, object: podWith(t, running)}, want: "spec.ephemeralContainers"},
		"a shell that is root of the node": {
			review: shell("securityContext: {privileged: true}"), want: "spec.containers[*].securityContext.privileged",
		},
		"a shell that traces": {
			review: shell("securityContext: {capabilities: {add: [SYS_PTRACE]}}"),
			want:   "spec.containers[*].securityContext.capabilities.add",
		},
		"a shell that knows the node": {
			review: shell("env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]"),
			want:   "spec.containers[*].env[*].valueFrom.fieldRef",
		},
		"a resize":               {review: resize(running + larger)},
		"a resize of an odd pod": {review: resize(running + larger + "hostNetwork: true"), want: "spec.hostNetwork"},
		"a shell, at home":       {review: review{by: admin, in: inShop, of: "pods/ephemeralcontainers", old: podWith(t, running), object: debugged}},
		"more tolerations": {
			review: review{by: admin, in: inTwin, old: podWith(t, running), object: podWith(t, running+"tolerations: [{operator: Exists}]")},
			want:   "spec.tolerations",
		},
	})
}
