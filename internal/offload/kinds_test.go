// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// arrives sends a pod out and returns what the provider makes of it, less what it adds itself.
func arrives(t *testing.T, home *corev1.Pod) *corev1.Pod {
	t.Helper()
	template, err := Outbound(home, "10.1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	pod, err := Build(shadowFrom(t, template), Rules{})
	if err != nil {
		t.Fatal(err)
	}
	pod = asWritten(pod)
	pod.Spec.Affinity, pod.Spec.AutomountServiceAccountToken, pod.Spec.SecurityContext = nil, nil, nil
	forEachContainer(&pod.Spec, func(c *corev1.Container) { c.SecurityContext = nil })
	return pod
}

func TestKindsOfPodsThatArriveAsTheyAre(t *testing.T) {
	for name, text := range map[string]string{
		"a sidecar and a step before": `
initContainers:
- {name: mesh, image: i, restartPolicy: Always, startupProbe: {tcpSocket: {port: 15001}}}
- {name: migrate, image: i, command: [migrate]}
containers: [{name: c, image: i}, {name: d, image: i}]`,
		"probes of each kind": `
containers:
- name: c
  image: i
  ports: [{name: http, containerPort: 80}]
  startupProbe: {exec: {command: [test, -f, /ready]}, failureThreshold: 30}
  readinessProbe: {httpGet: {path: /ready, port: http, httpHeaders: [{name: Host, value: web}]}}
  livenessProbe: {grpc: {port: 9000, service: alive}, terminationGracePeriodSeconds: 3}`,
		"hooks and a signal": `
os: {name: linux}
terminationGracePeriodSeconds: 5
containers:
- name: c
  image: i
  lifecycle: {postStart: {exec: {command: [warm]}}, preStop: {sleep: {seconds: 3}}, stopSignal: SIGQUIT}`,
		"volumes of its own": `
volumes:
- {name: a, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: b, downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, {path: c, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}}
- {name: c, configMap: {name: settings, items: [{key: a, path: a}], optional: true}}
- {name: d, secret: {secretName: password, defaultMode: 256}}
- {name: e, projected: {sources: [{configMap: {name: settings}}, {secret: {name: password}}, {downwardAPI: {items: []}}]}}
containers:
- {name: c, image: i, volumeMounts: [{name: a, mountPath: /a, subPathExpr: $(POD)}, {name: d, mountPath: /d, readOnly: true}]}
imagePullSecrets: [{name: registry}]`,
		"environment": `
containers:
- name: c
  image: i
  envFrom: [{configMapRef: {name: settings}}, {prefix: P_, secretRef: {name: password, optional: true}}]
  env:
  - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
  - {name: KEY, valueFrom: {configMapKeyRef: {name: settings, key: k}}}
  - {name: WORD, valueFrom: {secretKeyRef: {name: password, key: k}}}`,
		"names": `
hostname: web
subdomain: shop
setHostnameAsFQDN: true
hostAliases: [{ip: 10.0.0.1, hostnames: [db]}]
dnsPolicy: ClusterFirstWithHostNet
dnsConfig: {searches: [example.com], options: [{name: ndots, value: "2"}]}
containers: [{name: c, image: i}]`,
		"restarts by exit code": `
restartPolicy: Never
activeDeadlineSeconds: 60
containers:
- name: c
  image: i
  restartPolicy: Never
  restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
  terminationMessagePath: /dev/out
  terminationMessagePolicy: FallbackToLogsOnError`,
		"resized in place": `
resources: {requests: {cpu: "1"}, limits: {cpu: "2"}}
containers:
- name: c
  image: i
  resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
  resources: {requests: {memory: 1Mi}, limits: {memory: 2Mi}}`,
	} {
		t.Run(name, func(t *testing.T) {
			home := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop", UID: "home-uid"}}
			if err := yaml.UnmarshalStrict([]byte(text), &home.Spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(home.Spec, arrives(t, home).Spec, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-home +there:\n%s", diff)
			}
		})
	}
}

// What the Job and StatefulSet controllers tell a pod of itself is as they wrote it at home.
func TestPodsOfJobsAndStatefulSetsKnowTheirIndex(t *testing.T) {
	home := homePod()
	home.Annotations = map[string]string{"batch.kubernetes.io/job-completion-index": "3"}
	home.Labels = map[string]string{"apps.kubernetes.io/pod-index": "5"}
	env := fieldEnv("metadata.annotations['batch.kubernetes.io/job-completion-index']", "metadata.labels['apps.kubernetes.io/pod-index']")
	home.Spec.Containers[0].Env = env
	home.Spec.InitContainers = []corev1.Container{{Name: "init", Env: env}}
	home.Spec.Volumes = []corev1.Volume{{Name: "self", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "index", FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
		}}},
	}}}}
	pod := arrives(t, home)
	want := []corev1.EnvVar{{Name: env[0].Name, Value: "3"}, {Name: env[1].Name, Value: "5"}}
	for _, got := range [][]corev1.EnvVar{pod.Spec.Containers[0].Env, pod.Spec.InitContainers[0].Env} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	if pod.Annotations["batch.kubernetes.io/job-completion-index"] != "3" || pod.Labels["apps.kubernetes.io/pod-index"] != "5" {
		t.Errorf("the file would be empty: %v, %v", pod.Annotations, pod.Labels)
	}
}

func TestWhatIsRefusedSaysWhy(t *testing.T) {
	home := homePod()
	home.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: "10.0.0.1", Port: intstr.FromInt32(80)},
	}}
	const want = "spec.containers[0].livenessProbe.httpGet.host: not allowed: " + nodesRequest
	if reason, _ := Refusal(home); reason != want {
		t.Errorf("got %q, want %q", reason, want)
	}
}

func resources(cpu string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}, Claims: []corev1.ResourceClaim{{Name: "gpu"}},
	}
}

// A resize is asked for at home and done at the provider: each state of it comes back, and none stays.
func TestResizeIsShownAtHome(t *testing.T) {
	remote := remotePod()
	remote.Status.Conditions = append(remote.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
		Message: "Node didn't have enough resource: cpu, requested: 2000, used: 1500, capacity: 3000",
	})
	remote.Status.ContainerStatuses[0].Resources = resources("1")
	remote.Status.ContainerStatuses[0].AllocatedResources = resources("1").Requests
	home := boundHome()
	var err error
	if home.Status, err = Inbound(home, recorded(t, Export(remote)), here, after.Time); err != nil {
		t.Fatal(err)
	}
	pending := PodCondition(&home.Status, corev1.PodResizePending)
	if pending == nil || pending.Reason != "Deferred" || pending.Message != safeMessages["Deferred"] || pending.ObservedGeneration != 1 {
		t.Errorf("got condition %v", pending)
	}
	want := resources("1")
	want.Claims = nil
	if diff := cmp.Diff(want, home.Status.ContainerStatuses[0].Resources); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want.Requests, home.Status.ContainerStatuses[0].AllocatedResources); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if home.Status, err = Inbound(home, recorded(t, Export(remotePod())), here, after.Time); err != nil {
		t.Fatal(err)
	}
	if c := PodCondition(&home.Status, corev1.PodResizePending); c != nil {
		t.Errorf("the resize is over, but home shows %v", c)
	}
}

func TestDebuggerIsShownAtHome(t *testing.T) {
	remote := remotePod()
	remote.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{
		{Name: "debugger", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: noon}}}, {Name: "stranger"},
	}
	home := boundHome()
	home.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("debugger", nil)}
	show := func(remote *corev1.Pod) corev1.ContainerStatus {
		t.Helper()
		status, err := Inbound(home, recorded(t, Export(remote)), here, after.Time)
		if err != nil {
			t.Fatal(err)
		}
		if len(status.EphemeralContainerStatuses) != 1 {
			t.Fatalf("home shows %v", status.EphemeralContainerStatuses)
		}
		home.Status = status
		return status.EphemeralContainerStatuses[0]
	}
	if got := show(remote); got.State.Running == nil {
		t.Errorf("got %v, want a running container", got.State)
	}
	if got := show(remotePod()); got.State.Terminated == nil || got.State.Terminated.Reason != "ContainerStatusUnknown" {
		t.Errorf("the pod was made again without it: got %v, want it lost", got.State)
	}
	if got := show(remote); got.State.Terminated == nil {
		t.Errorf("got %v: the API server refuses that an ephemeral container runs again", got.State)
	}
}

func TestClaimsNeverGoBack(t *testing.T) {
	home := boundHome()
	home.Status.Phase = corev1.PodRunning
	home.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", Image: "i", RestartCount: 9, Ready: true, Started: ptr.To(true),
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: noon}},
	}}
	got, err := Inbound(home, recorded(t, Export(remotePod())), here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	if n := got.ContainerStatuses[0].RestartCount; n != 9 {
		t.Errorf("got %d restarts, 9 were shown", n)
	}
	// The pod is made again, and its provider has nothing to tell yet.
	got, err = Inbound(home, recorded(t, corev1.PodStatus{Phase: corev1.PodPending}), here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	want := []corev1.ContainerStatus{{
		Name: "c", Image: "i", RestartCount: 9, LastTerminationState: home.Status.ContainerStatuses[0].State,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}}
	if diff := cmp.Diff(want, got.ContainerStatuses); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.Phase != corev1.PodRunning {
		t.Errorf("a running pod is %s again", got.Phase)
	}
}

func TestRestartOfAllContainersFreesTheirEnds(t *testing.T) {
	home := boundHome()
	home.Spec.RestartPolicy = corev1.RestartPolicyNever
	home.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{FinishedAt: noon},
	}}}
	home.Spec.InitContainers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action: corev1.ContainerRestartRuleActionRestartAllContainers,
	}}
	got, err := Inbound(home, recorded(t, Export(remotePod())), here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	if got.ContainerStatuses[0].State.Running == nil {
		t.Errorf("got %v, want the container that runs again", got.ContainerStatuses[0].State)
	}
}

func TestStatusOfContainersIsBounded(t *testing.T) {
	many := corev1.ResourceList{"not a name": resource.MustParse("1")}
	for i := range 100 {
		many[corev1.ResourceName("example.com/"+string(rune('a'+i%26))+string(rune('a'+i/26)))] = resource.MustParse("1")
	}
	status := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "c", AllocatedResources: many,
		VolumeMounts: []corev1.VolumeMountStatus{{Name: "self", MountPath: "/self"}, {Name: "self", MountPath: "/other"}},
		User:         &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: -1}},
	}}}
	got, err := Inbound(boundHome(), recorded(t, status), here, after.Time)
	if err != nil {
		t.Fatal(err)
	}
	c := got.ContainerStatuses[0]
	if len(c.AllocatedResources) != maxResources || len(c.VolumeMounts) != 1 || c.User != nil {
		t.Errorf("got %d resources, mounts %v, user %v", len(c.AllocatedResources), c.VolumeMounts, c.User)
	}
}
