// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// likeAll is a pod as a decoder makes it: with strings of its own.
func likeAll() *corev1.Pod {
	own := strings.Clone
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: own("web-1"), Namespace: own("shop"), UID: "1",
			Labels:          map[string]string{own("pod-template-hash"): own("5d4f8c7b9")},
			Annotations:     map[string]string{own("hanse.dev/peer"): own("turin")},
			Finalizers:      []string{own("hanse.dev/remote-pod")},
			OwnerReferences: []metav1.OwnerReference{{Kind: own("ReplicaSet"), Name: own("web-5d4f8c7b9")}},
		},
		Spec: corev1.PodSpec{
			NodeName: own("hanse-turin"), RestartPolicy: corev1.RestartPolicy(own("Always")),
			Containers: []corev1.Container{{Name: own("web"), Image: own("registry.example/web:1")}},
		},
		Status: corev1.PodStatus{
			Phase:             corev1.PodPhase(own("Running")),
			Conditions:        []corev1.PodCondition{{Type: corev1.PodConditionType(own("Ready")), Reason: own("Started")}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: own("web"), ImageID: own("sha256:1234")}},
		},
	}
}

// untilNextCollection has no garbage collected during the test, which is for how long strings are shared with later ones.
func untilNextCollection(t *testing.T) {
	t.Helper()
	before := debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(before) })
}

func TestPodsShareTheirStrings(t *testing.T) {
	untilNextCollection(t)
	a, b, want := likeAll(), likeAll(), likeAll()
	shareTexts(a)
	shareTexts(b)
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("sharing changes the pod (-before +after):\n%s", diff)
	}
	same := func(what, x, y string) {
		t.Helper()
		if unsafe.StringData(x) != unsafe.StringData(y) {
			t.Errorf("each pod has its own %s", what)
		}
	}
	same("namespace", a.Namespace, b.Namespace)
	same("value of a label", a.Labels["pod-template-hash"], b.Labels["pod-template-hash"])
	for x := range a.Labels {
		for y := range b.Labels {
			same("key of a label", x, y)
		}
	}
	same("finalizer", a.Finalizers[0], b.Finalizers[0])
	same("owner", a.OwnerReferences[0].Name, b.OwnerReferences[0].Name)
	same("node", a.Spec.NodeName, b.Spec.NodeName)
	same("image", a.Spec.Containers[0].Image, b.Spec.Containers[0].Image)
	same("phase", string(a.Status.Phase), string(b.Status.Phase))
	same("reason", a.Status.Conditions[0].Reason, b.Status.Conditions[0].Reason)
	same("id of the image", a.Status.ContainerStatuses[0].ImageID, b.Status.ContainerStatuses[0].ImageID)
}

func TestRecordsShareTheirStrings(t *testing.T) {
	untilNextCollection(t)
	for phase, shared := range map[corev1.PodPhase]bool{
		"": false, corev1.PodPending: false, corev1.PodRunning: true, corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		record := func() *v1alpha1.ShadowPod {
			return &v1alpha1.ShadowPod{ObjectMeta: likeAll().ObjectMeta, Status: v1alpha1.ShadowPodStatus{
				Phase:      string(phase),
				Conditions: []metav1.Condition{{Type: "Ready", Message: strings.Clone("It runs")}},
			}}
		}
		a, b := record(), record()
		trimRecord(a)
		trimRecord(b)
		if diff := cmp.Diff(record(), a); diff != "" {
			t.Errorf("phase %q: sharing changes the record (-before +after):\n%s", phase, diff)
		}
		x, y := a.Status.Conditions[0].Message, b.Status.Conditions[0].Message
		if got := unsafe.StringData(x) == unsafe.StringData(y); got != shared {
			t.Errorf("phase %q: records share their message: %t, want %t", phase, got, shared)
		}
	}
}

func TestTrimPod(t *testing.T) {
	for name, tc := range map[string]struct {
		node string
		spec bool
	}{
		"of a pod on a real node little is kept":      {"worker-1", false},
		"of one on no node as well":                   {"", false},
		"one on a virtual node is kept but for notes": {turinNode, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podCalled("web-1")
			pod.Spec.NodeName = tc.node
			pod.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "keep": "me"}
			trimmed, err := TrimPod(pod)
			got, ok := trimmed.(*corev1.Pod)
			if err != nil || !ok || got.UID != "uid-web-1" {
				t.Fatalf("trimmed to %v, %v", trimmed, err)
			}
			if kept := len(got.Spec.Containers) > 0; kept != tc.spec {
				t.Errorf("spec kept: %t", kept)
			}
			if _, noted := got.Annotations[corev1.LastAppliedConfigAnnotation]; noted {
				t.Error("kubectl's note is kept")
			}
			if _, other := got.Annotations["keep"]; other != tc.spec {
				t.Errorf("other annotations kept: %t", other)
			}
		})
	}
}

func TestOfAStartedPodIsKeptWhatItsStatusIsJudgedBy(t *testing.T) {
	pod := podCalled("web-1")
	pod.Spec.NodeName = turinNode
	pod.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name}}
	w := newWorld(t, pod.DeepCopy())

	if _, err := TrimPod(pod); err != nil {
		t.Fatal(err)
	}
	kept := pod.Spec.Containers[0]
	if kept.Name == "" || len(kept.VolumeMounts) == 0 || len(kept.Env) > 0 || len(pod.Spec.Volumes) > 0 {
		t.Errorf("kept %+v", pod.Spec)
	}
	all, err := wholePod(t.Context(), w.Home.Client, pod)
	if err != nil || len(all.Spec.Volumes) != 1 || len(all.Spec.Containers[0].Env) != 1 {
		t.Errorf("whole, it has the spec %+v (%v)", all.Spec, err)
	}
	pod.UID = "uid-of-its-successor"
	if all, err := wholePod(t.Context(), w.Home.Client, pod); err == nil {
		t.Errorf("another pod is taken for it: %v", all.UID)
	}
}
