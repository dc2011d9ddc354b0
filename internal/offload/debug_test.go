// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func debugger(name string, change func(*corev1.EphemeralContainer)) corev1.EphemeralContainer {
	c := corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: "busybox", Stdin: true, TTY: true,
			Env: fieldEnv("metadata.namespace"),
			VolumeMounts: []corev1.VolumeMount{
				{Name: "self", MountPath: "/self"}, {Name: "kube-api-access-x", MountPath: "/var/run/secrets"},
			},
			SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}},
		},
		TargetContainerName: "c",
	}
	if change != nil {
		change(&c)
	}
	return c
}

func TestDebuggersGoAlong(t *testing.T) {
	home := homePod()
	home.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		debugger("sysadmin", func(c *corev1.EphemeralContainer) { c.SecurityContext.Privileged = ptr.To(true) }),
		debugger("debugger", nil),
		debugger("device", func(c *corev1.EphemeralContainer) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		}),
	}
	template, err := Outbound(home, "")
	if err != nil {
		t.Fatal(err)
	}
	shadow := shadowFrom(t, template)
	got, err := Debugging(shadow, Rules{Restricted: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []corev1.EphemeralContainer{debugger("debugger", func(c *corev1.EphemeralContainer) {
		c.Env = []corev1.EnvVar{{Name: "metadata.namespace", Value: "shop"}}
		c.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	})}
	if diff := cmp.Diff(want, asWritten(&corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: got}}).Spec.EphemeralContainers); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	pod, err := Build(shadow, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.EphemeralContainers) > 0 {
		t.Error("a new pod has ephemeral containers, which the API server refuses")
	}
}

func TestDebugRefusalNamesTheCause(t *testing.T) {
	for want, change := range map[string]func(*corev1.EphemeralContainer){
		"": nil,
		`container "d": spec.ephemeralContainers[].securityContext.privileged: not allowed (true)`: func(c *corev1.EphemeralContainer) { c.SecurityContext.Privileged = ptr.To(true) },
		`capabilities.add: not allowed (SYS_ADMIN)`:                                                func(c *corev1.EphemeralContainer) { c.SecurityContext.Capabilities.Add[0] = "SYS_ADMIN" },
		`container "d": spec.ephemeralContainers[].ports`:                                          func(c *corev1.EphemeralContainer) { c.Ports = []corev1.ContainerPort{{ContainerPort: 1}} },
	} {
		home := homePod()
		home.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("d", change)}
		before := home.DeepCopy()
		reason, refused := DebugRefusal(home)
		if refused != (want != "") || !strings.Contains(reason, want) {
			t.Errorf("got %q, %t, want %q", reason, refused, want)
		}
		if diff := cmp.Diff(before, home); diff != "" {
			t.Errorf("the pod was changed:\n%s", diff)
		}
		if reason, refused := Refusal(home); refused {
			t.Errorf("the pod is refused for its debugger: %s", reason)
		}
	}
}

func TestDebuggingReadsWhatAHostileConsumerSends(t *testing.T) {
	for raw, want := range map[string]string{
		"": "spec.pod: empty",
		`{"spec":{"containers":[{"name":"c"}],"ephemeralContainers":[{"name":"d","securityContext":{"privileged":true}}]}}`: `privileged: not allowed (true)`,
		`{"spec":{"containers":[{"name":"c"}],"ephemeralContainers":[{"name":"d","shell":"sh"}]}}`:                          "unknown field",
	} {
		if got, err := Debugging(shadowOf(raw), Rules{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", got, err, want)
		}
	}
}
