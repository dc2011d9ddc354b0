// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit/cputime"
)

func shadowOf(raw string) *v1alpha1.ShadowPod {
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop-lubeck-c0ffee", UID: "shadow-uid"},
		Spec:       v1alpha1.ShadowPodSpec{HomeUID: "home-uid", Pod: raw},
	}
}

func shadowFrom(t *testing.T, template corev1.PodTemplateSpec) *v1alpha1.ShadowPod {
	t.Helper()
	raw, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	return shadowOf(string(raw))
}

// asWritten takes off what Build puts before the variables of each container.
func asWritten(pod *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	forEachKindOfContainer(&out.Spec, func(c *corev1.Container) {
		c.Env = slices.DeleteFunc(c.Env, func(v corev1.EnvVar) bool {
			return slices.Contains(apiServerVariables, v.Name) && v.Value == "" && v.ValueFrom == nil
		})
		if len(c.Env) == 0 {
			c.Env = nil
		}
	})
	return out
}

// A kubelet tells each container where the API server is, unless the container has variables of these names.
func TestRemotePodsDoNotKnowTheAPIServer(t *testing.T) {
	shadow := shadowOf(`{"spec":{"initContainers":[{"name":"init","image":"i"}],
		"containers":[{"name":"c","image":"i","env":[{"name":"API","value":"$(KUBERNETES_SERVICE_HOST)"},
			{"name":"KUBERNETES_SERVICE_PORT","value":"6443"}]}],
		"ephemeralContainers":[{"name":"debug","image":"i"}]}}`)
	pod, err := Build(shadow, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.EphemeralContainers, err = Debugging(shadow, Rules{}); err != nil {
		t.Fatal(err)
	}
	forEachKindOfContainer(&pod.Spec, func(c *corev1.Container) {
		values, order := map[string]string{}, []string{}
		for _, v := range c.Env {
			values[v.Name] = v.Value
			order = append(order, v.Name)
		}
		if len(order) != len(values) {
			t.Errorf("%s has a variable twice: %v", c.Name, order)
		}
		for _, name := range apiServerVariables {
			want := ""
			if c.Name == "c" && name == "KUBERNETES_SERVICE_PORT" {
				want = "6443" // as its author wrote
			}
			if got, there := values[name]; !there || got != want {
				t.Errorf("%s: %s is %q (%t), want %q", c.Name, name, got, there, want)
			}
		}
		if host, api := slices.Index(order, "KUBERNETES_SERVICE_HOST"), slices.Index(order, "API"); api >= 0 && api < host {
			t.Errorf("a variable that refers to it comes before it: %v", order)
		}
	})
}

func TestBuildConfinesAndOwnsThePod(t *testing.T) {
	got, err := Build(shadowOf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`), Rules{})
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: "shop-lubeck-c0ffee",
			Labels: map[string]string{"app": "web", v1alpha1.LabelHomeUID: "home-uid"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "hanse.dev/v1alpha1", Kind: "ShadowPod", Name: "web-0", UID: "shadow-uid", Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"NET_RAW"}},
				},
			}},
			AutomountServiceAccountToken: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				Sysctls:        []corev1.Sysctl{{Name: "net.ipv4.ping_group_range", Value: "0 2147483647"}},
			},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: "hanse.dev/type", Operator: "NotIn", Values: []string{"virtual-node"},
					}}}},
				},
			}},
		},
	}
	if diff := cmp.Diff(want, asWritten(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// everything is a pod that uses each thing on the allow-list.
const everything = `{"metadata":{"labels":{"app":"web","pod-template-hash":"x"},"annotations":{"note":"n","batch.kubernetes.io/job-completion-index":"3","hanse.dev/home-namespace":"shop"}},
"spec":{"restartPolicy":"OnFailure","terminationGracePeriodSeconds":5,"activeDeadlineSeconds":60,"dnsPolicy":"None",
"dnsConfig":{"nameservers":["1.1.1.1"]},"hostname":"h","subdomain":"s","setHostnameAsFQDN":true,"hostAliases":[{"ip":"1.2.3.4","hostnames":["a"]}],
"shareProcessNamespace":true,"enableServiceLinks":true,"hostUsers":false,"os":{"name":"linux"},"automountServiceAccountToken":false,
"resources":{"requests":{"cpu":"1"}},
"securityContext":{"runAsUser":1,"runAsGroup":2,"runAsNonRoot":true,"fsGroup":3,"supplementalGroups":[4],"fsGroupChangePolicy":"Always",
"seccompProfile":{"type":"RuntimeDefault"},"appArmorProfile":{"type":"RuntimeDefault"},"seLinuxOptions":{"type":"container_t","level":"s0"},
"sysctls":[{"name":"net.ipv4.tcp_syncookies","value":"1"},{"name":"net.ipv4.ping_group_range","value":"0 0"}]},
"volumes":[{"name":"e","emptyDir":{"medium":"Memory","sizeLimit":"1Mi"}},
{"name":"d","downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"metadata.name"}}],"defaultMode":420}},
{"name":"p","projected":{"sources":[{"downwardAPI":{"items":[{"path":"cpu","resourceFieldRef":{"containerName":"c","resource":"limits.cpu"},"mode":256}]}}]}}],
"initContainers":[{"name":"side","image":"i","restartPolicy":"Always"}],
"containers":[{"name":"c","image":"i","imagePullPolicy":"Always","command":["a"],"args":["b"],"workingDir":"/","stdin":true,"tty":true,
"ports":[{"name":"http","containerPort":80,"protocol":"TCP"}],
"env":[{"name":"A","value":"x"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}},{"name":"C","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}}],
"resources":{"limits":{"cpu":"1"},"requests":{"cpu":"500m"}},"resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"}],
"volumeMounts":[{"name":"e","mountPath":"/e","subPath":"s","mountPropagation":"HostToContainer"}],
"livenessProbe":{"httpGet":{"path":"/","port":80}},"readinessProbe":{"tcpSocket":{"port":80}},"startupProbe":{"exec":{"command":["true"]},"periodSeconds":3},
"lifecycle":{"preStop":{"sleep":{"seconds":1}},"postStart":{"exec":{"command":["true"]}}},
"terminationMessagePath":"/m","terminationMessagePolicy":"File",
"securityContext":{"privileged":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":true,"procMount":"Default"}}]}}`

func TestBuildKeepsEverythingOnTheList(t *testing.T) {
	pod, err := Build(shadowOf(everything), Rules{})
	if err != nil {
		t.Fatal(err)
	}
	var asked corev1.PodTemplateSpec
	if err := json.Unmarshal([]byte(everything), &asked); err != nil {
		t.Fatal(err)
	}
	// What Build itself adds is asserted elsewhere.
	pod = asWritten(pod)
	pod.Spec.Affinity = nil
	pod.Spec.InitContainers[0].SecurityContext = nil
	if diff := cmp.Diff(asked.Spec, pod.Spec); diff != "" {
		t.Errorf("-asked +built:\n%s", diff)
	}
	if diff := cmp.Diff(asked.Annotations, pod.Annotations); diff != "" {
		t.Errorf("-asked +built:\n%s", diff)
	}
}

func TestBuildRefuses(t *testing.T) {
	spec := func(fields string) string {
		return `{"spec":{` + fields + `,"containers":[{"name":"c"}]}}`
	}
	container := func(fields string) string {
		return `{"spec":{"containers":[{"name":"c",` + fields + `}]}}`
	}
	volume := func(source string) string { return spec(`"volumes":[{"name":"v",` + source + `}]`) }
	for raw, want := range map[string]string{
		"":                           "spec.pod: empty",
		"[]":                         "spec.pod: ",
		`{"spec":{"hostnetwork":1}}`: `unknown field "spec.hostnetwork"`,
		`{"spec":{"containers":[{"name":"c","name":"d"}]}}`:    "duplicate field",
		strings.Repeat(" ", v1alpha1.MaxShadowPodBytes) + "{}": "at most",

		spec(`"hostNetwork":true`):                    "spec.hostNetwork: not allowed",
		spec(`"hostPID":true`):                        "spec.hostPID: not allowed",
		spec(`"hostIPC":true`):                        "spec.hostIPC: not allowed",
		spec(`"nodeName":"n"`):                        "spec.nodeName: not allowed",
		spec(`"nodeSelector":{"a/b":"c"}`):            "spec.nodeSelector[a/b]: not allowed",
		spec(`"tolerations":[{"operator":"Exists"}]`): "spec.tolerations: not allowed",
		spec(`"tolerations":[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists","effect":"NoSchedule"}]`): "spec.tolerations: not allowed",
		spec(`"priority":2000001000`):            "spec.priority: not allowed",
		spec(`"priority":0`):                     "spec.priority: not allowed",
		spec(`"preemptionPolicy":"Never"`):       "spec.preemptionPolicy: not allowed",
		spec(`"serviceAccount":"admin"`):         "spec.serviceAccount: not allowed",
		spec(`"schedulingGates":[{"name":"g"}]`): "spec.schedulingGates: not allowed",
		spec(`"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule"}]`): "spec.topologySpreadConstraints: not allowed",
		spec(`"overhead":{"cpu":"1"}`):                                                                                             "spec.overhead.cpu: not allowed",
		spec(`"resources":{"claims":[{"name":"gpu"}]}`):                                                                            "spec.resources.claims: not allowed",
		spec(`"initContainers":[{"name":"i","securityContext":{"privileged":true}}]`):                                              "spec.initContainers[0].securityContext.privileged: not allowed",
		spec(`"initContainers":[` + strings.TrimSuffix(strings.Repeat(`{"name":"i"},`, 250), ",") + `]`):                           "spec.containers: 251 with the init and ephemeral ones, at most 250 are taken",
		spec(`"securityContext":{"sysctls":[{"name":"net.ipv4.tcp_syncookies","value":"1"},{"name":"kernel.panic","value":"1"}]}`): "spec.securityContext.sysctls[1].name: not allowed",
		spec(`"securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"p"}}`):                                   "spec.securityContext.seccompProfile.localhostProfile: not allowed",
		spec(`"affinity":{"podAffinity":{}}`):                                                                                      "spec.affinity.podAffinity: not allowed",
		spec(`"priorityClassName":"system-node-critical"`):                                                                         "spec.priorityClassName: not allowed",
		spec(`"runtimeClassName":"r"`):                                                                                             "spec.runtimeClassName: not allowed",
		spec(`"schedulerName":"s"`):                                                                                                "spec.schedulerName: not allowed",
		spec(`"serviceAccountName":"admin"`):                                                                                       "spec.serviceAccountName: not allowed",
		spec(`"automountServiceAccountToken":true`):                                                                                "spec.automountServiceAccountToken: not allowed",
		spec(`"imagePullSecrets":[{"name":"A/b"}]`):                                                                                "spec.imagePullSecrets[0].name: not allowed",
		spec(`"resourceClaims":[{"name":"s"}]`):                                                                                    "spec.resourceClaims: not allowed",
		spec(`"readinessGates":[{"conditionType":"s"}]`):                                                                           "spec.readinessGates: not allowed",
		spec(`"ephemeralContainers":[{"name":"s","securityContext":{"privileged":true}}]`):                                         "spec.ephemeralContainers[0].securityContext.privileged: not allowed",
		spec(`"ephemeralContainers":[{"name":"s","ports":[{"containerPort":1}]}]`):                                                 "spec.ephemeralContainers[0].ports: not allowed",
		spec(`"securityContext":{"seccompProfile":{"type":"Unconfined"}}`):                                                         "spec.securityContext.seccompProfile.type: not allowed",
		spec(`"securityContext":{"windowsOptions":{"hostProcess":true}}`):                                                          "spec.securityContext.windowsOptions.hostProcess: not allowed",
		spec(`"securityContext":{"seLinuxOptions":{"type":"spc_t"}}`):                                                              "spec.securityContext.seLinuxOptions.type: not allowed",
		spec(`"securityContext":{"sysctls":[{"name":"kernel.msgmax","value":"1"}]}`):                                               "spec.securityContext.sysctls[0].name: not allowed",

		volume(`"hostPath":{"path":"/"}`):                                        "spec.volumes[0].hostPath.path: not allowed",
		volume(`"secret":{"secretName":"../s"}`):                                 "spec.volumes[0].secret.secretName: not allowed",
		volume(`"configMap":{"name":"kube-root-ca.crt"}`):                        "spec.volumes[0].configMap.name: not allowed",
		volume(`"persistentVolumeClaim":{"claimName":"../s"}`):                   "spec.volumes[0].persistentVolumeClaim.claimName: not allowed",
		volume(`"nfs":{"server":"s","path":"/"}`):                                "spec.volumes[0].nfs: not allowed",
		volume(`"csi":{"driver":"s"}`):                                           "spec.volumes[0].csi.driver: not allowed",
		volume(`"projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}`): "spec.volumes[0].projected.sources[0].serviceAccountToken.audience: not allowed",

		volume(`"projected":{"sources":[{"secret":{"name":"S"}}]}`):                        "spec.volumes[0].projected.sources[0].secret.name: not allowed",
		volume(`"projected":{"sources":[{"clusterTrustBundle":{"path":"p","name":"n"}}]}`): "spec.volumes[0].projected.sources[0].clusterTrustBundle: not allowed",
		volume(`"projected":{"sources":[{"podCertificate":{"signerName":"s"}}]}`):          "spec.volumes[0].projected.sources[0].podCertificate.signerName: not allowed",

		container(`"resources":{"claims":[{"name":"gpu"}]}`):                                            "spec.containers[0].resources.claims: not allowed",
		container(`"env":[{"name":"N","valueFrom":{"secretKeyRef":{"name":"s/t","key":"k"}}}]`):         "spec.containers[0].env[0].valueFrom.secretKeyRef.name: not allowed",
		container(`"startupProbe":{"tcpSocket":{"host":"127.0.0.1","port":10250}}`):                     "spec.containers[0].startupProbe.tcpSocket.host: not allowed",
		container(`"securityContext":{"windowsOptions":{"hostProcess":true}}`):                          "spec.containers[0].securityContext.windowsOptions.hostProcess: not allowed",
		container(`"securityContext":{"seccompProfile":{"type":"Unconfined"}}`):                         "spec.containers[0].securityContext.seccompProfile.type: not allowed",
		container(`"securityContext":{"privileged":true}`):                                              "spec.containers[0].securityContext.privileged: not allowed",
		container(`"securityContext":{"capabilities":{"add":["NET_ADMIN"]}}`):                           "spec.containers[0].securityContext.capabilities.add: not allowed",
		container(`"securityContext":{"procMount":"Unmasked"}`):                                         "spec.containers[0].securityContext.procMount: not allowed",
		container(`"securityContext":{"appArmorProfile":{"type":"Unconfined"}}`):                        "spec.containers[0].securityContext.appArmorProfile.type: not allowed",
		container(`"ports":[{"containerPort":1,"hostPort":1}]`):                                         "spec.containers[0].ports[0].hostPort: not allowed",
		container(`"envFrom":[{"secretRef":{"name":""}},{"configMapRef":{"name":"kube-root-ca.crt"}}]`): "spec.containers[0].envFrom[1].configMapRef.name: not allowed",
		container(`"env":[{"name":"N","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}]`):        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: not allowed",
		container(`"env":[{"name":"N","valueFrom":{"fieldRef":{"fieldPath":"status.hostIP"}}}]`):        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: not allowed",
		container(`"livenessProbe":{"httpGet":{"host":"169.254.169.254","port":80}}`):                   "spec.containers[0].livenessProbe.httpGet.host: not allowed",
		container(`"lifecycle":{"preStop":{"tcpSocket":{"host":"10.0.0.1","port":80}}}`):                "spec.containers[0].lifecycle.preStop.tcpSocket.host: not allowed",
		container(`"volumeMounts":[{"name":"d","mountPath":"/d","mountPropagation":"Bidirectional"}]`):  "spec.containers[0].volumeMounts[0].mountPropagation: not allowed",

		`{"metadata":{"name":"other"}}`:                                                             "metadata.name: not allowed",
		`{"metadata":{"namespace":"kube-system"}}`:                                                  "metadata.namespace: not allowed",
		`{"metadata":{"generateName":"other-"}}`:                                                    "metadata.generateName: not allowed",
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`: "metadata.ownerReferences: not allowed",
		`{"metadata":{"deletionGracePeriodSeconds":0}}`:                                             "metadata.deletionGracePeriodSeconds: not allowed",
		`{"metadata":{"finalizers":["a/b"]}}`:                                                       "metadata.finalizers: not allowed",
		`{"metadata":{"labels":{"hanse.dev/peer":"other"}}}`:                                        "metadata.labels[hanse.dev/peer]: not allowed",
		`{"metadata":{"annotations":{"hanse.dev/left-out":"x"}}}`:                                   "metadata.annotations[hanse.dev/left-out]: not allowed",
		`{"metadata":{"labels":{"\u001b[31m":"x"}}}`:                                                "not allowed",
		`{"metadata":{"annotations":{"a/b/c":"x"}}}`:                                                "metadata.annotations[a/b/c]: not allowed",
		`{"metadata":{"annotations":{"hanse.dev/home-namespace":"A/B"}}}`:                           "metadata.annotations[hanse.dev/home-namespace]: not allowed",
	} {
		t.Run(want, func(t *testing.T) {
			pod, err := Build(shadowOf(raw), Rules{})
			if pod != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}

func TestBuildRefusesAHomeUIDThatIsNoLabel(t *testing.T) {
	shadow := shadowOf(`{}`)
	for _, uid := range []string{"", "a b", strings.Repeat("a", 64)} {
		shadow.Spec.HomeUID = types.UID(uid)
		if _, err := Build(shadow, Rules{}); err == nil {
			t.Errorf("took %q", uid)
		}
	}
}

func TestBuildReadsHugeNumbersInTime(t *testing.T) {
	limit := func(quantity string) string {
		return `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":` + quantity + `}}}]}}`
	}
	for name, raw := range map[string]string{
		"exponent":          limit(`"1e1000000000"`),
		"negative exponent": limit(`"1e-1000000000"`),
		"plain number":      limit(`1e1000000000`),
		"escaped":           limit(`"1\u00651000000000"`),
		"repeated key":      limit(`"1e1000000000","cpu":"1"`),
		"three digits":      limit(`"1e999"`),
		"claim size":        `{"spec":{"volumes":[{"name":"v","ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"1e1000000000"}}}}}}]}}`,
		"size of a volume":  `{"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1e1000000000"}}]}}`,
		"divisor":           `{"spec":{"containers":[{"env":[{"name":"N","valueFrom":{"resourceFieldRef":{"divisor":"1e-1000000000"}}}]}]}}`,
		"overhead":          `{"spec":{"overhead":{"cpu":"1e-1000000000"}}}`,
		"resources of all":  `{"spec":{"resources":{"requests":{"cpu":"1e-1000000000"}}}}`,
		"many digits":       limit(`"` + strings.Repeat("9", 200_000) + `"`),
		"many decimals":     limit(`"0.` + strings.Repeat("9", 200_000) + `"`),
	} {
		t.Run(name, func(t *testing.T) {
			if took := cputime.Of(func() { _, _ = Build(shadowOf(raw), Rules{}) }); took > 5*time.Second {
				t.Errorf("took %s of CPU time", took)
			}
		})
	}
}

// A hash in hexadecimal digits may look like a number, as one in a hundred short ones does.
func TestTextsThatLookLikeNumbersAreTexts(t *testing.T) {
	raw := `{"metadata":{"labels":{"sha":"1e12345"},"annotations":{"sha":"1e12345"}},"spec":{"containers":[{"name":"c","image":"i",
		"command":["1e12345"],"args":["-1E99999"],"env":[{"name":"GIT_SHA","value":"1e12345"}]}]}}`
	pod, err := Build(shadowOf(raw), Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if got := asWritten(pod).Spec.Containers[0].Env[0].Value; got != "1e12345" {
		t.Errorf("got %q", got)
	}
	home := homePod()
	home.Annotations = map[string]string{"sha": "1e12345"}
	image := operation("replace", "/spec/containers/0/image", `"registry.example.com/web:1e12345"`)
	if _, err := Override(home, []v1alpha1.ClusterOverride{overrideIn("south", image)}, south); err != nil {
		t.Error(err)
	}
}
