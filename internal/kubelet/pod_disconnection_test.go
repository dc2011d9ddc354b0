// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

// cut takes turin off the network, or puts it back.
func (w *world) cut(cut bool) {
	w.Helper()
	if cut {
		w.turin.Cut()
	} else {
		w.turin.Heal()
	}
}

func nodeReady(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func TestNodeOfAPeerThatIsCutOffIsUnknownUntilItAnswers(t *testing.T) {
	w := offloaded(t)
	w.reconcileNode()
	before := w.node()
	w.cut(true)
	w.Clock.Step(time.Minute)
	w.wrote()

	w.reconcileNode()
	w.reconcileNode()
	if diff := cmp.Diff([]string{"home patch/status Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	ready := nodeReady(w.node())
	if ready.Status != corev1.ConditionUnknown || ready.Reason != v1alpha1.ReasonDisconnected {
		t.Errorf("Ready is %s, %s", ready.Status, ready.Reason)
	}
	if n := len(w.Events.Events); n != 1 {
		t.Errorf("%d events", n)
	}

	w.cut(false)
	w.reconcileNode()
	if got, want := nodeReady(w.node()), nodeReady(before); got.Status != want.Status || got.Reason != want.Reason {
		t.Errorf("Ready is %s, %s", got.Status, got.Reason)
	}
}

func TestNodeStaysAsItIsShownWhileNobodyKnows(t *testing.T) {
	w := offloaded(t)
	w.cut(true)
	w.reconcileNode()
	w.wrote()
	// As after a restart: the peer has not answered yet, and has not been silent for long.
	w.silence()
	w.reconcileNode()
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestNodeWithoutAnOfferIsCutOffAndComesBackToo(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.remove(w.Home, advertisement()) // its hellos are missing
	w.cut(true)
	w.reconcileNode()
	if ready := nodeReady(w.node()); ready.Status != corev1.ConditionUnknown || !isClosed(w.node()) {
		t.Errorf("Ready is %s, closed %t", ready.Status, isClosed(w.node()))
	}
	w.pod("web-1") // fails the test if it was deleted
	w.cut(false)
	w.reconcileNode()
	if ready := nodeReady(w.node()); ready.Status != corev1.ConditionTrue {
		t.Errorf("Ready is %s", ready.Status)
	}
}

func TestPodsOfAPeerThatIsCutOffAreNotReadyUntilItAnswers(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	before := w.pod("web-1").Status
	w.wrote()

	w.cut(true)
	w.Clock.Step(time.Minute)
	w.reconcilePod("web-1")
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"home patch/status Pod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	during := w.pod("web-1").Status
	ready := offload.PodCondition(&during, corev1.PodReady)
	if ready == nil || ready.Status != corev1.ConditionFalse || ready.Reason != v1alpha1.ReasonDisconnected ||
		!ready.LastTransitionTime.Time.Equal(w.Clock.Now().Truncate(time.Second)) {
		t.Errorf("Ready is %+v", ready)
	}
	if diff := cmp.Diff(before.ContainerStatuses, during.ContainerStatuses); diff != "" {
		t.Errorf("containers (-before +during):\n%s", diff)
	}

	w.cut(false)
	w.reconcilePod("web-1")
	if diff := cmp.Diff(before, w.pod("web-1").Status); diff != "" {
		t.Errorf("after the cut (-before +after):\n%s", diff)
	}
}

func TestCutTouchesNoPodThatIsNotOut(t *testing.T) {
	ended := podCalled("ended")
	ended.Status.Phase = corev1.PodSucceeded
	ended.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web"}}
	w := offloaded(t, ended)
	w.cut(true)
	w.reconcilePod("ended")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestOlderCopyEndsBeforeItsReplacementGoesOut(t *testing.T) {
	w := offloaded(t, podCalled("db-0"))
	w.reconcilePod("db-0")
	w.runRemote("db-0", corev1.PodRunning)
	w.cut(true)
	old := w.pod("db-0")
	w.remove(w.Home, old)
	replacement := podCalled("db-0")
	replacement.UID = "uid-replacement"
	w.put(w.Home, replacement)
	w.reconcilePod("db-0")
	w.wrote()

	w.cut(false)
	w.reconcilePod("db-0")
	if diff := cmp.Diff([]string{"remote patch ShadowPod db-0", "remote delete ShadowPod db-0"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if status := w.pod("db-0").Status; len(status.ContainerStatuses) > 0 {
		t.Errorf("the replacement shows the status of the older copy: %+v", status)
	}
	w.forgetRemote("db-0")
	w.reconcilePod("db-0")
	if uid := w.shadow("db-0").Spec.HomeUID; uid != "uid-replacement" {
		t.Errorf("the peer runs %s", uid)
	}
}

func TestPodDeletedDuringTheCutEndsAfterIt(t *testing.T) {
	pod := dying("web-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.cut(true)
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("during the cut wrote %v", got)
	}
	w.cut(false)
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"remote delete ShadowPod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestTolerationsSayHowLongPodsStay(t *testing.T) {
	toleration := func(key string, seconds *int64) corev1.Toleration {
		return corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds,
		}
	}
	notReady, unreachable := corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	five := ptr.To(int64(300))
	replace := v1alpha1.NamespaceOffloadingSpec{OnDisconnect: v1alpha1.DisconnectionReplace}
	minute := replace
	minute.ReplaceAfter = &metav1.Duration{Duration: time.Minute}
	for name, tc := range map[string]struct {
		how     v1alpha1.NamespaceOffloadingSpec
		has     []corev1.Toleration
		want    []corev1.Toleration
		changed bool
	}{
		"Wait forgets Kubernetes' own times": {
			has:     []corev1.Toleration{toleration("mine", five), toleration(notReady, five), toleration(unreachable, five)},
			want:    []corev1.Toleration{toleration("mine", five), toleration(notReady, nil), toleration(unreachable, nil)},
			changed: true,
		},
		"a time that the user chose stays": {
			has:     []corev1.Toleration{toleration(notReady, ptr.To(int64(60))), toleration(unreachable, five)},
			want:    []corev1.Toleration{toleration(notReady, ptr.To(int64(60))), toleration(unreachable, nil)},
			changed: true,
		},
		"nothing is added": {how: minute},
		"Replace changes them": {
			how:     minute,
			has:     []corev1.Toleration{toleration(notReady, five)},
			want:    []corev1.Toleration{toleration(notReady, ptr.To(int64(60)))},
			changed: true,
		},
		"Replace by default is what Kubernetes has": {
			how: replace, has: []corev1.Toleration{toleration(notReady, five)}, want: []corev1.Toleration{toleration(notReady, five)},
		},
		"Wait has nothing to change twice": {
			has: []corev1.Toleration{toleration(notReady, nil)}, want: []corev1.Toleration{toleration(notReady, nil)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podCalled("web-1")
			pod.Spec.Tolerations = tc.has
			got, changed := tolerationsOf(pod, &tc.how, 5*time.Minute)
			if diff := cmp.Diff(tc.want, got); diff != "" || changed != tc.changed {
				t.Errorf("changed %t (-want +got):\n%s", changed, diff)
			}
		})
	}
}

func TestTolerationsAreChangedBeforeThePodGoesOut(t *testing.T) {
	pod := podCalled("web-1")
	pod.Spec.Tolerations = []corev1.Toleration{{
		Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: ptr.To(int64(300)),
	}}
	w := offloaded(t, pod)
	w.reconcilePod("web-1")
	w.reconcilePod("web-1")
	want := []string{"home patch Pod web-1", "remote create ShadowPod web-1"}
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if seconds := w.pod("web-1").Spec.Tolerations[0].TolerationSeconds; seconds != nil {
		t.Errorf("it stays for %d s", *seconds)
	}
}

func TestPodGoesOutOnceMoreTranslatedOnlyIfMoreHasChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing has":                  {func(*corev1.Pod) {}, false},
		"its tolerations have":         {func(p *corev1.Pod) { p.Generation++; p.Spec.Tolerations = []corev1.Toleration{{}} }, false},
		"somebody changed it as well":  {func(p *corev1.Pod) { p.Generation += 2 }, true},
		"somebody labelled it as well": {func(p *corev1.Pod) { p.Generation++; p.Labels["a"] = "b" }, true},
		"somebody annotated it":        {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := podCalled("web-1")
			tc.change(after)
			if got := changedBesides(podCalled("web-1"), after); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestEventSaysWhatIsWrongWithThePeer(t *testing.T) {
	for name, tc := range map[string]struct {
		over error
		want string
	}{
		"it is silent":      {nil, "Warning PeerDisconnected The peer does not answer"},
		"it sends too much": {peers.ErrOverBudget, "Warning OverBudget Nothing more is taken from the peer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := offloaded(t)
			status := corev1.NodeStatus{Conditions: []corev1.NodeCondition{cutOffNode(tc.over)}}
			if err := w.nodes.show(t.Context(), w.node(), &status); err != nil {
				t.Fatal(err)
			}
			w.ExpectEvent(tc.want)
		})
	}
}

func TestNodeWithoutCredentialsIsNotReadyAtOnce(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	w.turin.RemoveCredentials()
	w.reconcileNode() // which finds that they are gone
	w.reconcileNode()
	ready := nodeCondition(w.node(), corev1.NodeReady)
	if ready.Status != corev1.ConditionUnknown || !strings.Contains(ready.Message, "no credentials") {
		t.Errorf("the node is %v", ready)
	}
	w.reconcilePod("web-1")
	if isReady(w.pod("web-1")) {
		t.Error("its pod is ready")
	}
}

func TestPodThatIsPendingAtThePeerIsNotHeldAfterARestart(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.links.Close(turin) // as when this process has just started
	w.wrote()
	if result := w.reconcilePod("web-1"); result.RequeueAfter != waitTimeout {
		t.Errorf("it is looked at again after %s", result.RequeueAfter)
	}
	if got := w.wrote(); got != nil {
		t.Errorf("before it is known whether there is a link, %v was written", got)
	}
}

func TestHeldPodThatThePeerHasIsHeldNoMore(t *testing.T) {
	pod := podCalled("web-1")
	w := offloaded(t, pod)
	w.put(w.Home, func() *corev1.Pod { pod.Status = heldStatus(pod, "there is no link"); return pod }())
	w.put(w.Away, shadowOf(pod))
	w.reconcilePod("web-1")
	if status := w.pod("web-1").Status; status.Reason != "" || len(status.ContainerStatuses) > 0 {
		t.Errorf("it still says %q", status.Reason)
	}
}
