// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// placed is what the policy may change of a pod.
type placed struct {
	Affinity    *corev1.Affinity    `json:"affinity,omitempty"`
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	Why         string              `json:"why,omitempty"`
}

const (
	stays = `
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}]}}}
`
	leaves = `
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: hanse.dev/type, operator: In, values: [virtual-node]}]}]}}}
tolerations: [{key: hanse.dev/virtual-node, operator: Exists}, {key: hanse.dev/full, operator: Exists, effect: NoSchedule}]
`
	mayLeave = `
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference:
  {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}}]}}
tolerations: [{key: hanse.dev/virtual-node, operator: Exists, effect: NoSchedule}, {key: hanse.dev/full, operator: Exists, effect: NoSchedule}]
`
	selectsSouth = `
strategy: %s
clusterSelector:
  matchLabels: {region: south}
  matchExpressions: [{key: gpu, operator: Exists}, {key: tier, operator: NotIn, values: [test, dev]}]
`
)

func TestPodsArePlacedByStrategy(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-place-pods")
	for name, test := range map[string]struct{ offloading, pod, want string }{
		"Local keeps it on real nodes":  {offloading: "{strategy: Local}", want: stays},
		"Remote moves it out":           {offloading: "{strategy: Remote}", want: leaves},
		"LocalAndRemote prefers home":   {offloading: "{strategy: LocalAndRemote}", want: mayLeave},
		"LocalAndRemote is the default": {offloading: "{}", want: mayLeave},
		"an empty selector is none":     {offloading: "{clusterSelector: {}}", want: mayLeave},
		"Remote with a selector": {
			offloading: fmt.Sprintf(selectsSouth, "Remote"),
			want: `
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [
  {key: hanse.dev/type, operator: In, values: [virtual-node]},
  {key: region, operator: In, values: [south]},
  {key: gpu, operator: Exists},
  {key: tier, operator: NotIn, values: [test, dev]}]}]}}}
tolerations: [{key: hanse.dev/virtual-node, operator: Exists}, {key: hanse.dev/full, operator: Exists, effect: NoSchedule}]
`,
		},
		"LocalAndRemote with a selector": {
			offloading: "{clusterSelector: {matchLabels: {region: south}}}",
			want: `
affinity: {nodeAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]},
    {matchExpressions: [{key: hanse.dev/type, operator: In, values: [virtual-node]}, {key: region, operator: In, values: [south]}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference:
    {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}}]}}
tolerations: [{key: hanse.dev/virtual-node, operator: Exists, effect: NoSchedule}, {key: hanse.dev/full, operator: Exists, effect: NoSchedule}]
`,
		},
		"what the user requires is kept": {
			offloading: "{strategy: Remote}",
			pod: `
affinity:
  podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
      {matchExpressions: [{key: disk, operator: In, values: [ssd]}]},
      {matchFields: [{key: metadata.name, operator: In, values: [worker-1]}]},
      {}]}
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, preference: {matchExpressions: [{key: disk, operator: Exists}]}}]
tolerations: [{key: mine, operator: Exists}]
`,
			want: `
affinity:
  podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
      {matchExpressions: [{key: disk, operator: In, values: [ssd]}, {key: hanse.dev/type, operator: In, values: [virtual-node]}]},
      {matchFields: [{key: metadata.name, operator: In, values: [worker-1]}],
       matchExpressions: [{key: hanse.dev/type, operator: In, values: [virtual-node]}]},
      {}]}
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, preference: {matchExpressions: [{key: disk, operator: Exists}]}}]
tolerations: [{key: mine, operator: Exists}, {key: hanse.dev/virtual-node, operator: Exists}, {key: hanse.dev/full, operator: Exists, effect: NoSchedule}]
`,
		},
		"what the user requires is multiplied by the alternatives": {
			offloading: "{clusterSelector: {matchLabels: {region: south}}}",
			pod: `
affinity: {nodeAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: disk, operator: In, values: [ssd]}]},
    {},
    {matchFields: [{key: metadata.name, operator: In, values: [worker-1]}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, preference: {matchExpressions: [{key: disk, operator: Exists}]}}]}}
`,
			want: `
affinity: {nodeAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: disk, operator: In, values: [ssd]}, {key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]},
    {},
    {matchFields: [{key: metadata.name, operator: In, values: [worker-1]}],
     matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]},
    {matchExpressions: [{key: disk, operator: In, values: [ssd]},
      {key: hanse.dev/type, operator: In, values: [virtual-node]}, {key: region, operator: In, values: [south]}]},
    {},
    {matchFields: [{key: metadata.name, operator: In, values: [worker-1]}],
     matchExpressions: [{key: hanse.dev/type, operator: In, values: [virtual-node]}, {key: region, operator: In, values: [south]}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [
    {weight: 5, preference: {matchExpressions: [{key: disk, operator: Exists}]}},
    {weight: 100, preference: {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}}]}}
tolerations: [{key: hanse.dev/virtual-node, operator: Exists, effect: NoSchedule}, {key: hanse.dev/full, operator: Exists, effect: NoSchedule}]
`,
		},
		"Remote waits for a provider that is cut off": {
			offloading: "{strategy: Remote}",
			pod:        defaultTolerations,
			want: `
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: hanse.dev/type, operator: In, values: [virtual-node]}]}]}}}
tolerations:
  - {key: mine, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
  - {key: hanse.dev/virtual-node, operator: Exists}
  - {key: hanse.dev/full, operator: Exists, effect: NoSchedule}
`,
		},
		"Remote replaces its pods after a time": {
			offloading: "{strategy: Remote, onDisconnect: Replace, replaceAfter: 1m30s}",
			pod:        defaultTolerations,
			want: `
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: hanse.dev/type, operator: In, values: [virtual-node]}]}]}}}
tolerations:
  - {key: mine, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 90}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
  - {key: hanse.dev/virtual-node, operator: Exists}
  - {key: hanse.dev/full, operator: Exists, effect: NoSchedule}
`,
		},
		"what may stay at home keeps its times": {
			offloading: "{onDisconnect: Replace, replaceAfter: 1m30s}",
			pod:        defaultTolerations,
			want: `
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference:
  {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}}]}}
tolerations:
  - {key: mine, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
  - {key: hanse.dev/virtual-node, operator: Exists, effect: NoSchedule}
  - {key: hanse.dev/full, operator: Exists, effect: NoSchedule}
`,
		},
		"a pod with a claim may leave where the manager says so": {
			offloading: "{clusterSelector: {matchLabels: {region: south}}}",
			pod:        "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]",
			want: `
affinity: {nodeAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]},
    {matchExpressions: [{key: hanse.dev/type, operator: In, values: [virtual-node]}, {key: region, operator: In, values: [south]}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [
    {weight: 100, preference: {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}}]}}
`,
		},
		"at home nobody waits": {offloading: "{strategy: Local}", pod: defaultTolerations, want: stays + defaultTolerations},
	} {
		t.Run(name, func(t *testing.T) { comparePlaced(t, policy, test.offloading, podWith(t, test.pod), test.want) })
	}
}

const defaultTolerations = `
tolerations:
  - {key: mine, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
`

func TestPodsThatCannotLeaveStayAtHome(t *testing.T) {
	const (
		host   = "it uses namespaces or ports of its host"
		power  = "it is privileged or adds capabilities"
		claims = "it uses resource claims or a runtime class of this cluster"
		volume = `volume "v" is not taken along yet (only emptyDir, downwardAPI, ConfigMaps, Secrets, claims, tokens and images are)`
		certs  = `envFrom takes all of ConfigMap "kube-root-ca.crt"; use valueFrom for its one key`
	)
	const (
		confined = "it asks for less confinement than every provider gives (seccomp, AppArmor, SELinux, procMount, mount propagation)"
		kernel   = "it sets a sysctl that Pod Security does not call safe"
		hosts    = "a probe or hook names a host; the kubelet there would ask that from its node"
		shows    = "a downward file shows a label or an annotation that does not travel"
	)
	policy := mutatingPolicy(t, "hanse-place-pods")
	for name, test := range map[string]struct{ pod, why string }{
		"seccomp of the pod":             {"securityContext: {seccompProfile: {type: Unconfined}}", confined},
		"seccomp of a container":         {"containers: [{name: c, securityContext: {seccompProfile: {type: Localhost, localhostProfile: p}}}]", confined},
		"AppArmor":                       {"containers: [{name: c, securityContext: {appArmorProfile: {type: Unconfined}}}]", confined},
		"SELinux":                        {"securityContext: {seLinuxOptions: {type: spc_t}}", confined},
		"SELinux user":                   {"securityContext: {seLinuxOptions: {user: root}}", confined},
		"masked paths":                   {"containers: [{name: c, securityContext: {procMount: Unmasked}}]", confined},
		"mount propagation":              {"containers: [{name: c, volumeMounts: [{name: v, mountPath: /, mountPropagation: Bidirectional}]}]", confined},
		"unsafe sysctl":                  {"securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}", kernel},
		"probe of a host":                {"containers: [{name: c, readinessProbe: {httpGet: {host: a.example, port: 80}}}]", hosts},
		"hook to a host":                 {"containers: [{name: c, lifecycle: {preStop: {tcpSocket: {host: a.example, port: 80}}}}]", hosts},
		"annotation in a file":           {"volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.annotations['example.com/a']\"}}]}}]", shows},
		"annotation in a projection":     {"volumes: [{name: v, projected: {sources: [{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.annotations['example.com/a']\"}}]}}]}}]", shows},
		"annotation for scrapers":        {"volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.annotations['prometheus.io/port']\"}}]}}]", shows},
		"label in a file":                {"volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.labels['example.com/a']\"}}]}}]", shows},
		"label for roles of a cloud":     {"volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.labels['aadpodidbinding']\"}}]}}]", shows},
		"host network":                   {"hostNetwork: true", host},
		"host PIDs":                      {"hostPID: true", host},
		"host IPC":                       {"hostIPC: true", host},
		"host port":                      {"containers: [{name: c, ports: [{containerPort: 1, hostPort: 1}]}]", host},
		"privileged":                     {"containers: [{name: c, securityContext: {privileged: true}}]", power},
		"privileged init container":      {"containers: [{name: c}]\ninitContainers: [{name: i, securityContext: {privileged: true}}]", power},
		"added capability":               {"containers: [{name: c, securityContext: {capabilities: {add: [NET_ADMIN]}}}]", power},
		"resource claim":                 {"resourceClaims: [{name: gpu, resourceClaimName: gpu}]", claims},
		"runtime class":                  {"runtimeClassName: gvisor", claims},
		"ephemeral volume":               {"volumes: [{name: v, ephemeral: {}}]", volume},
		"path of the host":               {"volumes: [{name: e, emptyDir: {}}, {name: v, hostPath: {path: /}}]", volume},
		"certificates as environment":    {"containers: [{name: c, envFrom: [{configMapRef: {name: kube-root-ca.crt}}]}]", certs},
		"a kind of volume not known yet": {"volumes: [{name: v, nfs: {server: s, path: /}}]", volume},
	} {
		t.Run(name, func(t *testing.T) {
			for _, strategy := range []string{"Remote", "LocalAndRemote"} {
				comparePlaced(t, policy, "{strategy: "+strategy+"}", podWith(t, test.pod), stays+"\nwhy: '"+test.why+"'")
			}
			comparePlaced(t, policy, "{strategy: Local}", podWith(t, test.pod), stays)
			if _, refused := offload.Refusal(podWith(t, test.pod)); !refused {
				t.Error("the policy keeps at home what package offload takes")
			}
		})
	}
}

func TestPodsThatCanLeaveDo(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-place-pods")
	for name, pod := range map[string]string{
		"scratch space":              "volumes: [{name: v, emptyDir: {}}]",
		"confined as providers do":   "securityContext: {seccompProfile: {type: RuntimeDefault}, seLinuxOptions: {type: container_t}, sysctls: [{name: net.ipv4.tcp_syncookies, value: '1'}]}",
		"a probe of its own":         "containers: [{name: c, livenessProbe: {httpGet: {port: 80}}}]",
		"annotations that travel":    "volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.annotations['batch.kubernetes.io/job-completion-index']\"}}, {path: b, fieldRef: {fieldPath: \"metadata.annotations['plain']\"}}]}}]",
		"labels that travel":         "volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.labels['apps.kubernetes.io/pod-index']\"}}, {path: b, fieldRef: {fieldPath: \"metadata.labels['app.kubernetes.io/name']\"}}, {path: c, fieldRef: {fieldPath: \"metadata.labels['app']\"}}]}}]",
		"an image":                   "volumes: [{name: v, image: {reference: i, pullPolicy: Always}}]",
		"its own fields":             "volumes: [{name: v, downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}]",
		"its own fields, projected":  "volumes: [{name: v, projected: {sources: [{downwardAPI: {}}]}}]",
		"a token of its own":         "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]",
		"home's certificates":        "volumes: [{name: v, configMap: {name: kube-root-ca.crt}}]",
		"certificates, projected":    "volumes: [{name: v, projected: {sources: [{configMap: {name: kube-root-ca.crt}}]}}]",
		"certificates as a variable": "containers: [{name: c, env: [{name: A, valueFrom: {configMapKeyRef: {name: kube-root-ca.crt, key: ca.crt}}}]}]",
		"its service account's token": "volumes: [{name: kube-api-access-x, projected: {sources: [{serviceAccountToken: {path: token}}, " +
			"{configMap: {name: kube-root-ca.crt}}]}}]",
		"variables of its own":         "containers: [{name: c, env: [{name: A, value: b}, {name: N, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]",
		"configuration":                "volumes: [{name: v, configMap: {name: c}}, {name: s, secret: {secretName: s}}]",
		"projected configuration":      "volumes: [{name: v, projected: {sources: [{secret: {name: s}}, {configMap: {name: c}}]}}]",
		"environment from a ConfigMap": "containers: [{name: c, envFrom: [{configMapRef: {name: m}}, {secretRef: {name: s}}]}]",
		"variable from a Secret":       "containers: [{name: c, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]",
		"image pull secret":            "imagePullSecrets: [{name: s}]",
		"a harmless capability":        "containers: [{name: c, securityContext: {capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}}]",
		"a port":                       "containers: [{name: c, ports: [{containerPort: 80}]}]",
		"dropped capabilities":         "containers: [{name: c, securityContext: {privileged: false, capabilities: {drop: [ALL]}}}]",
		"an init container too":        "containers: [{name: c}]\ninitContainers: [{name: i}]",
	} {
		t.Run(name, func(t *testing.T) {
			comparePlaced(t, policy, "{strategy: Remote}", podWith(t, pod), leaves)
			if reason, refused := offload.Refusal(podWith(t, pod)); refused {
				t.Errorf("the policy sends away what package offload refuses: %s", reason)
			}
			guard := validatingPolicy(t, "hanse-guard-pods")
			if refused := guard.validate(review{by: manager, in: inTwin, object: arrived(t, podWith(t, pod))}); len(refused) > 0 {
				t.Errorf("the policy sends away what the provider's guard refuses: %v", refused)
			}
		})
	}
}

// arrived is the pod that a provider makes for a home pod.
func arrived(t *testing.T, home *corev1.Pod) *corev1.Pod {
	t.Helper()
	template, err := offload.Outbound(home, "")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	shadow := &v1alpha1.ShadowPod{Spec: v1alpha1.ShadowPodSpec{HomeUID: "uid", Pod: string(raw)}}
	shadow.Namespace, shadow.Name = "shop-lubeck-abcdef", home.Name
	pod, err := offload.Build(shadow, offload.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return withKind(pod, "", "v1", "Pod")
}

func TestPodsThatAreLeftAlone(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-place-pods")
	for name, edit := range map[string]func(*corev1.Pod){
		"of a DaemonSet": func(p *corev1.Pod) {
			p.OwnerReferences = append(p.OwnerReferences, *controllerRef("apps/v1", "DaemonSet"))
		},
		"mirror pod":          func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"} },
		"with a node already": func(p *corev1.Pod) { p.Spec.NodeName = "worker" },
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(t, "")
			edit(pod)
			comparePlaced(t, policy, "{strategy: Remote}", pod, "{}")
		})
	}
	t.Run("not of a ReplicaSet", func(t *testing.T) {
		pod := podWith(t, "")
		pod.OwnerReferences = append(pod.OwnerReferences, *controllerRef("apps/v1", "ReplicaSet"))
		comparePlaced(t, policy, "{strategy: Remote}", pod, leaves)
	})
}

func TestDaemonSetsStayHome(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-keep-daemonsets-home")
	for name, test := range map[string]struct{ pod, want string }{
		"without affinity":                 {"", stays},
		"with another affinity":            {"affinity: {podAffinity: {}}", "affinity: {podAffinity: {}, " + stays[len("\naffinity: {"):]},
		"with a preference":                {"affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}", "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}], " + stays[len("\naffinity: {nodeAffinity: {"):]},
		"that stay home already":           {stays, stays},
		"with a term that matches nothing": {terms("{}"), terms("{}")},
		"with terms": {
			terms("{matchExpressions: [{key: disk, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [a]}]}"),
			terms("{matchExpressions: [{key: disk, operator: Exists}, {key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}, " +
				"{matchFields: [{key: metadata.name, operator: In, values: [a]}], matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := withKind(&appsv1.DaemonSet{}, "apps", "v1", "DaemonSet")
			set.Spec.Template.Spec = podWith(t, test.pod).Spec
			for _, time := range []string{"once", "again"} {
				set = policy.mutate(review{object: set}).(*appsv1.DaemonSet)
				comparePlacement(t, time, set.Spec.Template.Spec, "", test.want)
			}
		})
	}
	t.Run("unless opted out", func(t *testing.T) {
		set := withKind(&appsv1.DaemonSet{}, "apps", "v1", "DaemonSet")
		set.Annotations = map[string]string{"hanse.dev/allow-on-virtual-nodes": "true"}
		set = policy.mutate(review{object: set}).(*appsv1.DaemonSet)
		comparePlacement(t, "once", set.Spec.Template.Spec, "", "{}")
	})
}

func terms(text string) string {
	return "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" + text + "]}}}"
}

func comparePlaced(t *testing.T, policy *admissionPolicy, offloading string, pod *corev1.Pod, want string) {
	t.Helper()
	params := admitted(t, "spec: "+indent(offloading)+"\nstatus: {placement: {nodes: [{name: hanse-hamburg}]}}")
	got := policy.mutate(review{object: pod, params: params}).(*corev1.Pod)
	comparePlacement(t, offloading, got.Spec, got.Annotations["hanse.dev/runs-at-home"], want)
}

func comparePlacement(t *testing.T, about string, spec corev1.PodSpec, why, want string) {
	t.Helper()
	var expected placed
	if err := yaml.UnmarshalStrict([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	got := placed{Affinity: spec.Affinity, Tolerations: spec.Tolerations, Why: why}
	if diff := cmp.Diff(expected, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", about, diff)
	}
}
