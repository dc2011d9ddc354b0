package offload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestOnlyTolerationsOfOfferedTaintsTravel(t *testing.T) {
	offered := []corev1.Taint{
		{Key: "gpu", Value: "a100", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
	}
	travels := []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	stays := []corev1.Toleration{
		{Operator: corev1.TolerationOpExists},
		{Key: "gpu", Value: "h100"},
		{Key: "team", Operator: corev1.TolerationOpExists},
		{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists},
		{Key: "hanse.dev/virtual-node", Operator: corev1.TolerationOpExists},
	}
	home := homePod()
	home.Spec.Tolerations = append(append([]corev1.Toleration{}, stays...), travels...)
	template, err := Outbound(home, Options{Taints: offered})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := Build(shadowFrom(t, template), Rules{Taints: offered})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(travels, pod.Spec.Tolerations); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, toleration := range stays {
		template.Spec.Tolerations = []corev1.Toleration{toleration}
		if _, err := Build(shadowFrom(t, template), Rules{Taints: offered}); err == nil || !strings.HasPrefix(err.Error(), "spec.tolerations") {
			t.Errorf("the provider takes %v (%v)", toleration, err)
		}
	}
}
