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
	expectRulings(t, validatingPolicy(t, "hanse-guard-pods"), map[string]ruling{
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
- {name: c, projected: {sources: [{downwardAPI: {items: []}}]}}
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
		"a claim":            {review: creates("volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]"), want: "spec.volumes:"},
		"csi":                {review: creates("volumes: [{name: v, csi: {driver: x}}]"), want: "spec.volumes:"},
		"a claim of its own": {review: creates("volumes: [{name: v, ephemeral: {}}]"), want: "spec.volumes:"},
		"nfs":                {review: creates("volumes: [{name: v, nfs: {server: x, path: /}}]"), want: "spec.volumes:"},
		"an image as volume": {review: creates("volumes: [{name: v, image: {reference: x}}]"), want: "spec.volumes:"},
		"a projected token": {
			review: creates("volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]"),
			want:   "spec.volumes[*].projected.sources",
		},
		"a projected Secret": {
			review: creates("volumes: [{name: v, projected: {sources: [{secret: {name: t}}]}}]"), want: "spec.volumes[*].projected.sources",
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
	expectRulings(t, validatingPolicy(t, "hanse-guard-pods"), map[string]ruling{
		"another image":    {review: review{by: manager, in: inTwin, old: podWith(t, running), object: withImage}},
		"by a controller":  {review: review{by: "system:serviceaccount:kube-system:generic-garbage-collector", in: inTwin, old: odd, object: labelled}},
		"its end":          {review: review{by: admin, in: inTwin, old: odd}},
		"its status":       {review: review{by: "system:node:worker-1", in: inTwin, of: "pods/status", old: odd, object: labelled}},
		"a shell added":    {review: review{by: admin, in: inTwin, of: "pods/ephemeralcontainers", old: podWith(t, running), object: debugged}, want: "spec.ephemeralContainers"},
		"a shell, at home": {review: review{by: admin, in: inShop, of: "pods/ephemeralcontainers", old: podWith(t, running), object: debugged}},
		"more tolerations": {
			review: review{by: admin, in: inTwin, old: podWith(t, running), object: podWith(t, running+"tolerations: [{operator: Exists}]")},
			want:   "spec.tolerations",
		},
	})
}
