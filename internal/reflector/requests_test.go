// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestPodsAskForWhatTheyNeed(t *testing.T) {
	requestsOfPod := (&copier{Config: Config{Network: true}}).requestsOfPod
	var want []request
	for _, kind := range reflection.Kinds(true) {
		want = append(want, request{Peer: "turin", place: place{Namespace: "shop", Kind: kind}})
	}
	if diff := cmp.Diff(want, requestsOfPod(podUsing("web")), cmp.AllowUnexported(request{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[2:], requestsOfPod(testkit.Pod("shop", "plain", "hanse-turin")), cmp.AllowUnexported(request{})); diff != "" {
		t.Errorf("a pod that refers to nothing (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:2], (&copier{}).requestsOfPod(podUsing("web")), cmp.AllowUnexported(request{})); diff != "" {
		t.Errorf("without a network (-want +got):\n%s", diff)
	}
	atHome := podUsing("web")
	atHome.Spec.NodeName = "worker"
	if got := requestsOfPod(atHome); got != nil {
		t.Errorf("a pod at home: got %v", got)
	}
}

// Status comes home all the time, and changes nothing.
func TestPodsAskWhenTheirNeedsChange(t *testing.T) {
	pending, away, running, ended, debugged := podUsing("web"), podUsing("web"), podUsing("web"), podUsing("web"), podUsing("web")
	pending.Spec.NodeName = ""
	running.Status.Phase, ended.Status.Phase = corev1.PodRunning, corev1.PodFailed
	debugged.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	update := func(before, after *corev1.Pod) bool {
		return needsMove.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	for name, test := range map[string]struct{ got, want bool }{
		"it is bound":             {update(pending, away), true},
		"it runs":                 {update(away, running), false},
		"it ends":                 {update(running, ended), true},
		"it refers to more":       {update(running, debugged), true},
		"it goes":                 {needsMove.Delete(event.DeleteEvent{Object: away}), true},
		"it goes and was not out": {needsMove.Delete(event.DeleteEvent{Object: pending}), false},
	} {
		if test.got != test.want {
			t.Errorf("%s: let through %v, want %v", name, test.got, test.want)
		}
	}
}

func TestReferencesAreKept(t *testing.T) {
	// trim is a transform that keeps nothing of the spec but where the pod is.
	trim := func(object any) (any, error) {
		pod := object.(*corev1.Pod)
		pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
		return pod, nil
	}
	trimmed := func(pod *corev1.Pod) []reflection.Reference {
		t.Helper()
		got, err := KeepReferences(trim)(pod)
		if err != nil {
			t.Fatal(err)
		}
		return reflection.References(&got.(*corev1.Pod).Spec)
	}
	away, atHome, remote, posing := podUsing("web"), podUsing("web"), podUsing("web"), podUsing("web")
	atHome.Spec.NodeName = "worker"
	remote.OwnerReferences = testkit.OwnedByShadowPod("web", "u")
	posing.Labels = map[string]string{v1alpha1.LabelHomeUID: "u"}
	for name, pod := range map[string]*corev1.Pod{"that is away": away, "that says it is another's": posing} {
		if diff := cmp.Diff(reflection.References(&podUsing("web").Spec), trimmed(pod)); diff != "" {
			t.Errorf("a pod %s (-want +got):\n%s", name, diff)
		}
	}
	for name, pod := range map[string]*corev1.Pod{"at home": atHome, "of another cluster": remote} {
		if got := trimmed(pod); got != nil {
			t.Errorf("a pod %s: kept %v", name, got)
		}
	}
}
