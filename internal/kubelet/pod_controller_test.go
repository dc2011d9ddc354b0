// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestPodGoesOutWithOneWrite(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))

	w.reconcilePod("web-1")
	want := []string{"remote create ShadowPod web-1"}
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	shadow := w.shadow("web-1")
	if shadow.Spec.HomeUID != "uid-web-1" {
		t.Errorf("homeUID is %q", shadow.Spec.HomeUID)
	}
	template := corev1.PodTemplateSpec{}
	if err := json.Unmarshal([]byte(shadow.Spec.Pod), &template); err != nil {
		t.Fatal(err)
	}
	if template.Spec.NodeName != "" || template.Spec.Containers[0].Image != "registry.example/shop:1" {
		t.Errorf("what went out: %+v", template.Spec)
	}

	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("a second look wrote %v", got)
	}
}

func TestPathOfAPodThatIsSentOnGoesOut(t *testing.T) {
	pod := podCalled("web-1")
	pod.Annotations = map[string]string{v1alpha1.AnnotationPath: "riga,visby"}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ShadowPod", Name: "web-1", UID: "s", Controller: ptr.To(true),
	}}
	w := offloaded(t, pod)
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"riga", "visby"}, w.shadow("web-1").Spec.Path); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
}

func TestPathThatAUserPutOnAPodIsIgnored(t *testing.T) {
	pod := podCalled("web-1")
	pod.Annotations = map[string]string{v1alpha1.AnnotationPath: "riga,visby"}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "r", Controller: ptr.To(true),
	}}
	w := offloaded(t, pod)
	w.reconcilePod("web-1")
	if path := w.shadow("web-1").Spec.Path; path != nil {
		t.Errorf("a pod that began here has come through %v", path)
	}
}

func TestStatusComesHomeOnce(t *testing.T) {
	pod := podCalled("web-1")
	w := offloaded(t, pod)
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)

	w.wrote()
	w.reconcilePod("web-1")
	want := []string{"home patch/status Pod web-1"}
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	got := w.pod("web-1").Status
	if got.Phase != corev1.PodRunning || got.PodIP != "10.200.3.4" || got.HostIP != "192.0.2.7" {
		t.Errorf("status at home: phase %s, podIP %s, hostIP %s", got.Phase, got.PodIP, got.HostIP)
	}

	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("nothing changed, but %v was written", got)
	}
}

// runRemote does what the provider does.
func (w *world) runRemote(name string, phase corev1.PodPhase) {
	w.Helper()
	shadow := w.shadow(name)
	status, err := json.Marshal(corev1.PodStatus{
		Phase: phase, PodIP: "10.244.3.4", PodIPs: []corev1.PodIP{{IP: "10.244.3.4"}},
		StartTime:  ptr.To(metav1.NewTime(testkit.Noon)),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(testkit.Noon)}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", Image: "registry.example/shop:1", Ready: true, ContainerID: "containerd://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(testkit.Noon)}},
		}},
	})
	if err != nil {
		w.Fatal(err)
	}
	shadow.Status = v1alpha1.ShadowPodStatus{
		Phase: string(phase), PodUID: "remote-uid", Pod: &runtime.RawExtension{Raw: status},
	}
	w.put(w.Away, shadow)
}

func TestConditionsOfOthersStay(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	pod := w.pod("web-1")
	pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
	w.put(w.Home, pod)

	w.reconcilePod("web-1")
	types := map[corev1.PodConditionType]bool{}
	for _, condition := range w.pod("web-1").Status.Conditions {
		types[condition.Type] = true
	}
	if !types["example.com/gate"] || !types[corev1.PodReady] {
		t.Errorf("conditions at home: %v", types)
	}
}

func TestPodInNamespaceThatIsNotOffloadedIsHeldAndSaysSoOnce(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.remove(w.Home, offloading())

	w.reconcilePod("web-1")
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"home patch/status Pod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	status := w.pod("web-1").Status
	waiting := status.ContainerStatuses[0].State.Waiting
	if status.Phase != corev1.PodPending || waiting == nil || waiting.Reason != v1alpha1.ReasonOffloadingBackOff {
		t.Errorf("status: %+v", status)
	}
	if !strings.Contains(waiting.Message, "create a NamespaceOffloading") {
		t.Errorf("the message does not say what to do: %q", waiting.Message)
	}
	if n := len(w.Events.Events); n != 1 {
		t.Errorf("%d events instead of one", n)
	}

	w.put(w.Home, offloading())
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	if status := w.pod("web-1").Status; status.Phase != corev1.PodRunning || status.Reason != "" || status.Message != "" {
		t.Errorf("after the namespace was offloaded: phase %s, reason %q", status.Phase, status.Reason)
	}
}

func TestPodsThatStayHome(t *testing.T) {
	daemon := podCalled("agent")
	daemon.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "d", Controller: ptr.To(true),
	}}
	static := podCalled("static")
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	privileged := podCalled("privileged")
	privileged.Spec.HostNetwork = true
	w := offloaded(t, daemon, static, privileged)
	for name, why := range map[string]string{
		"agent": "DaemonSets", "static": "static pod", "privileged": "the host's namespaces",
	} {
		w.reconcilePod(name)
		if diff := cmp.Diff([]string{"home patch/status Pod " + name}, w.wrote()); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", name, diff)
		}
		if message := w.pod(name).Status.Message; !strings.Contains(message, why) {
			t.Errorf("%s says %q", name, message)
		}
		if event := w.NextEvent(); !strings.Contains(event, v1alpha1.ReasonOffloadingBackOff) {
			t.Errorf("%s: event %q", name, event)
		}
	}
}

func TestPodOnRealNodeIsNotTouched(t *testing.T) {
	w := newWorld(t, peer(), offloading(), podCalled("web-1"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hanse-else"}})
	w.reconcileNode() // no advertisement, so no virtual node
	w.wrote()
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestPodWaitsForItsTwinBeforeItComplains(t *testing.T) {
	pod := podCalled("web-1")
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(testkit.Noon),
	}}
	w := newWorld(t, peer(), advertisement(), offloading(), pod)
	w.reconcileNode()
	w.wrote()

	if result := w.reconcilePod("web-1"); result.RequeueAfter != waitTimeout {
		t.Errorf("comes back after %s", result.RequeueAfter)
	}
	if got := w.wrote(); got != nil {
		t.Errorf("complained at once: %v", got)
	}
	w.Clock.Step(waitTimeout)
	w.reconcilePod("web-1")
	if message := w.pod("web-1").Status.Message; !strings.Contains(message, "no twin") {
		t.Errorf("message %q", message)
	}
}

func TestStartedPodIsNotSentAgainBeforeThePeerToldWhatItHas(t *testing.T) {
	pod := podCalled("web-1")
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web"}}
	w := offloaded(t, pod)
	w.silence()
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
	w.turin.Heal()
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"remote create ShadowPod web-1"}, w.wrote()); diff != "" {
		t.Errorf("after the peer told that it has none (-want +got):\n%s", diff)
	}
}

func TestEndedPodIsNeverRunAgain(t *testing.T) {
	pod := podCalled("job-1")
	pod.Status.Phase = corev1.PodSucceeded
	w := offloaded(t, pod)
	w.reconcilePod("job-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestRecordOfAnotherPodOfTheSameNameGoesFirst(t *testing.T) {
	before := podCalled("db-0")
	before.UID = "uid-before"
	old := shadowOf(before)
	old.Finalizers = nil
	w := offloaded(t, podCalled("db-0"))
	w.put(w.Away, old)

	w.reconcilePod("db-0")
	w.reconcilePod("db-0")
	want := []string{"remote patch ShadowPod db-0", "remote delete ShadowPod db-0", "remote create ShadowPod db-0"}
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestCollisionThatTheMirrorDoesNotShowIsSettledByUID(t *testing.T) {
	exists := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "shadowpods"}, "web-1")
	t.Run("our own record is left alone", func(t *testing.T) {
		w := offloaded(t, podCalled("web-1"))
		w.turin.Freeze() // the mirror does not show yet what we have written
		w.put(w.Away, shadowOf(podCalled("web-1")))
		w.Away.Refuse("create ShadowPod web-1", exists)
		w.reconcilePod("web-1")
		if diff := cmp.Diff([]string{"remote create ShadowPod web-1"}, w.wrote()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
	t.Run("that of a pod that is gone is ended and waited for", func(t *testing.T) {
		w := offloaded(t, podCalled("web-1"))
		other := podCalled("web-1")
		other.UID = "uid-before"
		w.turin.Freeze()
		w.put(w.Away, shadowOf(other))
		w.Away.Refuse("create ShadowPod web-1", exists)
		if _, err := w.tryPod("web-1"); err == nil {
			t.Error("nothing makes the pod come back")
		}
		want := []string{"remote create ShadowPod web-1", "remote patch ShadowPod web-1", "remote delete ShadowPod web-1"}
		if diff := cmp.Diff(want, w.wrote()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestNewAddressOfTheNodeIsNoChangeOfThePod(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	w.wrote()
	w.pods.nodeIP = "192.0.2.8" // as after a restart elsewhere
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestWithdrawnOfferTakesNoAddressOffAPod(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	w.remove(w.Home, advertisement())
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil || w.pod("web-1").Status.PodIP != "10.200.3.4" {
		t.Errorf("wrote %v, podIP %q", got, w.pod("web-1").Status.PodIP)
	}
}

func TestRefusalOfThePeerIsToldAndTriedAgain(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.Away.Refuse("create ShadowPod web-1", apierrors.NewForbidden(
		schema.GroupResource{Resource: "shadowpods"}, "web-1", nil))
	if _, err := w.tryPod("web-1"); !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
	if message := w.pod("web-1").Status.Message; !strings.Contains(message, `peer "turin" refuses it`) {
		t.Errorf("message %q", message)
	}
}

func TestPeerThatDoesNotAnswerIsToldInWordsThatDoNotChange(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	for _, message := range []string{"connection refused", "timeout after 3.2 s"} {
		answer := w.Away.Refuse("create ShadowPod web-1", apierrors.NewGenericServerResponse(
			http.StatusServiceUnavailable, "create", schema.GroupResource{}, "", message, 0, true))
		if _, err := w.tryPod("web-1"); err == nil {
			t.Error("no error")
		}
		answer()
	}
	want := []string{
		"remote create ShadowPod web-1", "home patch/status Pod web-1", "remote create ShadowPod web-1",
	}
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestStatusPatchIsForOnePodAndForWhatChanged(t *testing.T) {
	home := podCalled("web-1")
	home.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
	changed := *home.Status.DeepCopy()
	changed.Phase = corev1.PodRunning
	changed.Conditions = append(changed.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	after, patch := statusPatch(home, changed)
	raw, err := patch.Data(after)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"metadata": map[string]any{"uid": "uid-web-1"},
		"status": map[string]any{
			"phase":      "Running",
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastProbeTime": nil, "lastTransitionTime": nil}},
			"$setElementOrder/conditions": []any{
				map[string]any{"type": "example.com/gate"}, map[string]any{"type": "Ready"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}
