// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// FuzzBuild feeds Build what a hostile consumer may send.
func FuzzBuild(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte(`{"spec":{"containers":[{"name":"c","image":"i"}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"hanse.dev/peer":"x"}},"spec":{"hostNetwork":true}}`))
	f.Add([]byte(`{"spec":{"volumes":[{"name":"v","projected":{"sources":[{}]}}],"containers":null}}`))
	f.Add([]byte(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e999"}}}]}}`))
	f.Add([]byte(`{"spec":{"containers":[{"name":"c"}],"ephemeralContainers":[{"name":"e","securityContext":{"capabilities":{"add":["KILL"]}}}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		pod, err := Build(shadowOf(string(raw)), Rules{})
		strict, strictErr := Build(shadowOf(string(raw)), strictest)
		if (err == nil) != (strictErr == nil) {
			t.Errorf("rules change what is allowed: %v, %v", err, strictErr)
		}
		if err != nil {
			return
		}
		expectHarmless(t, pod)
		expectHarmless(t, strict)
		expectHarmlessDebuggers(t, shadowOf(string(raw)))
		forEachContainer(&strict.Spec, func(c *corev1.Container) {
			if _, ok := c.Resources.Requests[corev1.ResourceCPU]; !ok {
				t.Errorf("container %q asks for no cpu", c.Name)
			}
		})
	})
}

func expectHarmlessDebuggers(t *testing.T, shadow *v1alpha1.ShadowPod) {
	t.Helper()
	debuggers, err := Debugging(shadow, strictest)
	if err != nil {
		t.Errorf("a pod is allowed, but not its ephemeral containers: %v", err)
	}
	for i := range debuggers {
		c := asContainer(&debuggers[i])
		security := c.SecurityContext
		rights := slices.ContainsFunc(security.Capabilities.Add, func(name corev1.Capability) bool { return !isHarmless(string(name)) })
		if rights || security.Privileged != nil && *security.Privileged || len(c.Ports) > 0 {
			t.Errorf("a debugger has too many rights: %v", security)
		}
	}
}

// FuzzOverride feeds Override what a user may write. Nothing but the fields that overrides may change is changed.
func FuzzOverride(f *testing.F) {
	f.Add("add", "/spec/containers/0/env/-", []byte(`{"name":"A"}`))
	f.Add("replace", "/metadata/labels/a~1b", []byte(`"c"`))
	f.Add("remove", "/spec/containers/0/resources/limits", []byte(nil))
	f.Add("add", "/spec/containers/0/image/../../hostNetwork", []byte(`true`))
	f.Fuzz(func(t *testing.T, op, path string, value []byte) {
		patch := v1alpha1.PatchOperation{Op: op, Path: path, Value: &runtime.RawExtension{Raw: value}}
		got, err := Override(homePod(), []v1alpha1.ClusterOverride{{Patch: []v1alpha1.PatchOperation{patch}}}, nil)
		if err != nil {
			return
		}
		if diff := cmp.Diff(unpatchable(homePod()), unpatchable(got), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s %s %s changes more than it may:\n%s", op, path, value, diff)
		}
	})
}

// unpatchable is what no override can change of a pod.
func unpatchable(pod *corev1.Pod) *corev1.Pod {
	pod.Labels, pod.Annotations = nil, nil
	forEachContainer(&pod.Spec, func(c *corev1.Container) {
		c.Image, c.Command, c.Args, c.Env, c.Resources = "", nil, nil, nil, corev1.ResourceRequirements{}
	})
	return pod
}

var strictest = Rules{
	Restricted: true, LeastRequests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
}

func expectHarmless(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if pod.Name != "web-0" || pod.Namespace != "shop-lubeck-c0ffee" || len(pod.OwnerReferences) != 1 {
		t.Errorf("built another pod: %v", pod.ObjectMeta)
	}
	spec := &pod.Spec
	if spec.HostNetwork || spec.HostPID || spec.HostIPC || *spec.AutomountServiceAccountToken {
		t.Errorf("built a pod with too many rights: %v", spec)
	}
	if spec.NodeName != "" || spec.ServiceAccountName != "" {
		t.Errorf("built a pod that chooses its node or account: %v", spec)
	}
	expectHarmlessVolumes(t, spec.Volumes)
}

func expectHarmlessVolumes(t *testing.T, volumes []corev1.Volume) {
	t.Helper()
	for i := range volumes {
		v := &volumes[i]
		if v.HostPath != nil || v.Ephemeral != nil || v.CSI != nil {
			t.Errorf("built a pod with volume %v", v)
		}
	}
}

// FuzzInbound feeds Inbound what a hostile provider may tell.
func FuzzInbound(f *testing.F) {
	raw, err := json.Marshal(Export(remotePod()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, "Running", int32(0))
	f.Add([]byte(`{"phase":"Failed","podIPs":[{"ip":"10.244.0.1"},{"ip":"::1"}]}`), "Failed", int32(-1))
	f.Add([]byte(`{"conditions":[{"type":"PodScheduled","status":"False"}]}`), "", int32(1<<31-1))
	f.Add([]byte(`{"containerStatuses":[{"name":"c","state":{"running":{},"waiting":{},"terminated":{}}}]}`), "", int32(1))
	f.Fuzz(func(t *testing.T, raw []byte, phase string, restarts int32) {
		home := boundHome()
		shadow := shadowOf(`{}`)
		shadow.Status = v1alpha1.ShadowPodStatus{
			Phase: phase, Pod: &runtime.RawExtension{Raw: raw}, Restarts: map[string]int32{"c": restarts},
		}
		got, err := Inbound(home, shadow, here, after.Time)
		if err != nil {
			return
		}
		expectBounded(t, home, &got)
	})
}

func expectBounded(t *testing.T, home *corev1.Pod, got *corev1.PodStatus) {
	t.Helper()
	if !knownPhase(got.Phase) {
		t.Errorf("phase %q", got.Phase)
	}
	if c := PodCondition(got, corev1.PodScheduled); c == nil || c.Status != corev1.ConditionTrue {
		t.Errorf("PodScheduled is now %v", c)
	}
	if got.HostIP != home.Status.HostIP || len(got.ContainerStatuses) > 1 || len(got.InitContainerStatuses) > 1 {
		t.Errorf("took too much: %v", got)
	}
	expectSeen(t, got)
	for i := range got.ContainerStatuses {
		if got.ContainerStatuses[i].RestartCount < 0 {
			t.Errorf("restarts %d", got.ContainerStatuses[i].RestartCount)
		}
	}
}

// seen are the ranges in which this cluster sees the peer: see here.
var seen = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/16"), netip.MustParsePrefix("fd02::/48")}

func expectSeen(t *testing.T, got *corev1.PodStatus) {
	t.Helper()
	for _, ip := range got.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err != nil || !slices.ContainsFunc(seen, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			t.Errorf("pod IP %q", ip.IP)
		}
	}
	if len(got.PodIPs) > 2 || len(got.PodIPs) == 0 != (got.PodIP == "") {
		t.Errorf("pod IP %q of %v", got.PodIP, got.PodIPs)
	}
}

// Whatever a provider tells of events: what becomes of it at home is few, of one line, and happened in the life of the object.
func FuzzInboundEventsOf(f *testing.F) {
	f.Add([]byte(`[{"type":"Warning","reason":"ProvisioningFailed","message":"no room\u001b[31m","source":"Kubernetes","count":-1,"last":"2999-01-01T00:00:00Z"}]`))
	f.Add([]byte(`[{"type":"Normal","reason":"Assembled","source":"Kubernetes","first":"1970-01-01T00:00:00Z","container":"c"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var told []v1alpha1.RemoteEvent
		if json.Unmarshal(data, &told) != nil {
			return
		}
		home, now := &metav1.ObjectMeta{CreationTimestamp: noon}, noon.Add(time.Hour)
		for _, kind := range []string{"PersistentVolumeClaim", "Service", "Widget"} {
			events := InboundEventsOf(kind, home, told, now)
			if len(events) > v1alpha1.MaxRemoteEvents {
				t.Errorf("%d events", len(events))
			}
			for i := range events {
				expectSound(t, kind, &events[i], now)
			}
		}
	})
}

// expectSound checks that the event is short and of one line, and happened between noon and now.
func expectSound(t *testing.T, kind string, e *v1alpha1.RemoteEvent, now time.Time) {
	t.Helper()
	sound := reasonForm.MatchString(e.Reason) && len(e.Message) <= maxEventText && e.Count > 0 && e.Container == "" &&
		strings.IndexFunc(e.Message, unicode.IsControl) < 0
	if !sound || e.First.Before(&noon) || e.Last.Time.Before(e.First.Time) || e.Last.After(now) {
		t.Errorf("%s: %+v", kind, *e)
	}
}
