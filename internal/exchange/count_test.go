// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestWhatAPodCountsFor(t *testing.T) {
	cpu := func(amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(amount)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"containers":           {corev1.PodSpec{Containers: []corev1.Container{{Resources: cpu("1")}, {Resources: cpu("2")}}}, "3"},
		"a large first step":   {corev1.PodSpec{InitContainers: []corev1.Container{{Resources: cpu("5")}}, Containers: []corev1.Container{{Resources: cpu("1")}}}, "5"},
		"a sidecar":            {corev1.PodSpec{InitContainers: []corev1.Container{{Resources: cpu("5"), RestartPolicy: &always}}, Containers: []corev1.Container{{Resources: cpu("1")}}}, "6"},
		"overhead":             {corev1.PodSpec{Overhead: corev1.ResourceList{"cpu": resource.MustParse("250m")}, Containers: []corev1.Container{{Resources: cpu("1")}}}, "1250m"},
		"the pod as a whole":   {corev1.PodSpec{Resources: ptr.To(cpu("4")), Containers: []corev1.Container{{Resources: cpu("1")}}}, "4"},
		"less than nothing":    {corev1.PodSpec{Containers: []corev1.Container{{Resources: cpu("-1000")}}}, "0"},
		"of nothing no amount": {corev1.PodSpec{Containers: []corev1.Container{{}}}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			counted := Count(&corev1.Pod{Spec: c.spec})
			if got := counted[corev1.ResourceCPU]; got.Cmp(resource.MustParse(c.want)) != 0 {
				t.Errorf("got %s, want %s", got.String(), c.want)
			}
			if got := counted[corev1.ResourcePods]; got.Value() != 1 {
				t.Errorf("it counts as %s pods", got.String())
			}
		})
	}
}

func TestQuotasCountWhatPodsAskFor(t *testing.T) {
	for _, name := range []corev1.ResourceName{"cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"} {
		if counted, ok := CountedBy(QuotaKey(name)); !ok || counted != name {
			t.Errorf("%s is counted as %q", name, counted)
		}
	}
	for _, key := range []corev1.ResourceName{"requests.storage", "count/secrets", "limits.cpu"} {
		if counted, ok := CountedBy(key); ok {
			t.Errorf("%s counts %s of pods", key, counted)
		}
	}
	if key := QuotaKey("storage"); key != "requests.storage" { // of claims
		t.Errorf("storage is counted as %s", key)
	}
}
