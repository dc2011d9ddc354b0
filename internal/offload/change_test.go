package offload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func cpuAsked(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

func TestEntriesOfOthersStay(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"theirs": "1", "old": "1", "kept": "1"}}}
	before := metav1.ObjectMeta{Labels: map[string]string{"old": "1", "kept": "1"}}
	wanted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kept": "2", "new": "1"}}}
	want := map[string]string{"theirs": "1", "kept": "2", "new": "1"}
	if diff := cmp.Diff(want, Changed(pod, before, wanted).Labels); diff != "" {
		t.Error(diff)
	}
}

func TestWhatCanBeResized(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	with := func(name string, requests corev1.ResourceList) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}}
	}
	sidecar, first := with("sidecar", cpuAsked("1")), with("first", cpuAsked("1"))
	sidecar.RestartPolicy = &always
	have := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{first, sidecar},
		Containers:     []corev1.Container{with("c", nil), with("d", cpuAsked("1"))},
	}}
	want := have.DeepCopy()
	want.Spec.InitContainers[0].Resources.Requests = cpuAsked("2")
	want.Spec.Containers[1].Resources.Requests = nil
	if pod := Resized(have, want); !equality.Semantic.DeepEqual(pod, have) {
		t.Error("what has run to its end, or is not asked for, counts as a change")
	}
	want.Spec.InitContainers[1].Resources.Requests = cpuAsked("2")
	want.Spec.Containers[0].Resources.Requests = cpuAsked("3")
	pod := Resized(have, want)
	if pod.Spec.InitContainers[1].Resources.Requests.Cpu().String() != "2" || pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "3" {
		t.Errorf("got %+v", pod.Spec)
	}
	if first := pod.Spec.InitContainers[0].Resources.Requests.Cpu().String(); first != "1" {
		t.Errorf("the first asks for %s", first)
	}
}
