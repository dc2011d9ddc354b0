// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func cpuAsked(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

func TestEntriesOfOthersStay(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"theirs": "1", "old": "1", "kept": "1"}}}
	before := AskedOf(&metav1.ObjectMeta{Labels: map[string]string{"old": "1", "kept": "1"}}, &corev1.PodSpec{})
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
	if pod := Resized(have, nil, want); !equality.Semantic.DeepEqual(pod, have) {
		t.Error("what has run to its end, or is not asked for, counts as a change")
	}
	want.Spec.InitContainers[1].Resources.Requests = cpuAsked("2")
	want.Spec.Containers[0].Resources.Requests = cpuAsked("3")
	pod := Resized(have, nil, want)
	if pod.Spec.InitContainers[1].Resources.Requests.Cpu().String() != "2" || pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "3" {
		t.Errorf("got %+v", pod.Spec)
	}
	if first := pod.Spec.InitContainers[0].Resources.Requests.Cpu().String(); first != "1" {
		t.Errorf("the first asks for %s", first)
	}
}

// What a webhook or an autoscaler of the provider has made of the pod stays, unless home asks for something else.
func TestWhatOthersChangedStays(t *testing.T) {
	pod := func(label, image, cpu, memory string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"label": label}, Annotations: map[string]string{"note": label},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image, Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
				},
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
			}}}},
		}
	}
	asked := pod("mine", "i:1", "1", "1Gi")
	live := pod("theirs", "mirror/i:1", "2", "2Gi")
	NoteAsked(&live.ObjectMeta, AskedOf(&asked.ObjectMeta, &asked.Spec))
	for name, c := range map[string]struct{ wanted, want *corev1.Pod }{
		"nothing":  {pod("mine", "i:1", "1000m", "1Gi"), pod("theirs", "mirror/i:1", "2", "2Gi")},
		"a label":  {pod("new", "i:1", "1", "1Gi"), pod("new", "mirror/i:1", "2", "2Gi")},
		"an image": {pod("mine", "i:2", "1", "1Gi"), pod("theirs", "i:2", "2", "2Gi")},
		"the cpu":  {pod("mine", "i:1", "3", "1Gi"), pod("theirs", "mirror/i:1", "3", "2Gi")},
	} {
		before := NotedAsked(&live.ObjectMeta)
		got := Resized(Changed(live, before, c.wanted), before, c.wanted)
		delete(got.Annotations, v1alpha1.AnnotationAsked)
		if !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %s", name, cmp.Diff(c.want, got))
		}
	}
}

func TestWhatWasNotResizedIsAskedAgain(t *testing.T) {
	asked := func(image, cpu string) Asked {
		return AskedOf(&metav1.ObjectMeta{}, &corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: image, Resources: corev1.ResourceRequirements{Requests: cpuAsked(cpu)},
		}}})
	}
	if diff := cmp.Diff(asked("new", "1"), asked("new", "2").WithAmountsOf(asked("old", "1"))); diff != "" {
		t.Error(diff)
	}
	if got := asked("new", "2").WithAmountsOf(nil); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestDeadlineIsNeverPutOff(t *testing.T) {
	for name, c := range map[string]struct{ asked, running, wanted, want *int64 }{
		"none":                             {nil, nil, nil, nil},
		"the first":                        {nil, nil, ptr.To[int64](60), ptr.To[int64](60)},
		"a shorter one":                    {ptr.To[int64](60), ptr.To[int64](60), ptr.To[int64](5), ptr.To[int64](5)},
		"the same, where it was shortened": {ptr.To[int64](60), ptr.To[int64](9), ptr.To[int64](60), ptr.To[int64](9)},
		"one that is longer than theirs":   {ptr.To[int64](60), ptr.To[int64](9), ptr.To[int64](30), ptr.To[int64](9)},
	} {
		pod := func(deadline *int64) *corev1.Pod {
			return &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: deadline}}
		}
		before := AskedOf(&metav1.ObjectMeta{}, &pod(c.asked).Spec)
		if got := Changed(pod(c.running), before, pod(c.wanted)).Spec.ActiveDeadlineSeconds; !ptr.Equal(got, c.want) {
			t.Errorf("%s: got %v", name, ptr.Deref(got, 0))
		}
	}
}
