// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func in(phase v1alpha1.OfferPhase) *v1alpha1.Advertisement {
	ad := advertisement()
	ad.Spec.Phase = phase
	return ad
}

// unpeering is a Peer that is being deleted.
func unpeering(how *v1alpha1.PeerParting) *v1alpha1.Peer {
	p := peer()
	p.DeletionTimestamp = ptr.To(metav1.NewTime(testkit.Noon))
	p.Finalizers = []string{v1alpha1.FinalizerPeer}
	p.Spec.Parting = how
	return p
}

func closedNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: turinNode, Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}},
		Spec:       corev1.NodeSpec{ProviderID: "hanse://turin-id", Taints: closedTaints()},
	}
}

func ofDaemonSet(pod *corev1.Pod) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "d", Controller: ptr.To(true),
	}}
	return pod
}

func ofReplicaSet(pod *corev1.Pod) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "r", Controller: ptr.To(true),
	}}
	return pod
}

func TestWhyPodsLeaveANode(t *testing.T) {
	open := closedNode()
	open.Spec.Taints = ownTaints
	for name, test := range map[string]struct {
		facts nodeFacts
		how   method
		event string
	}{
		"no peer":                      {nodeFacts{node: closedNode()}, 0, ""},
		"no node":                      {nodeFacts{peer: unpeering(nil)}, 0, ""},
		"an open offer":                {nodeFacts{peer: peer(), ad: in(v1alpha1.OfferOpen), node: closedNode()}, 0, ""},
		"a cordoned one":               {nodeFacts{peer: peer(), ad: in(v1alpha1.OfferCordoned), node: closedNode()}, 0, ""},
		"a draining one":               {nodeFacts{peer: peer(), ad: in(v1alpha1.OfferDraining), node: closedNode()}, byEviction, v1alpha1.ReasonPeerDraining},
		"a leaving one":                {nodeFacts{peer: peer(), ad: in(v1alpha1.OfferLeaving), node: closedNode()}, byEviction, v1alpha1.ReasonPeerLeft},
		"but the node is closed first": {nodeFacts{peer: peer(), ad: in(v1alpha1.OfferDraining), node: open}, 0, ""},
		"no offer in force":            {nodeFacts{peer: peer(), node: closedNode()}, 0, ""},
		"we part": {
			nodeFacts{peer: unpeering(nil), node: closedNode()}, byEviction, v1alpha1.ReasonParting,
		},
		"we part, and say how, as by default": {
			nodeFacts{peer: unpeering(&v1alpha1.PeerParting{Mode: v1alpha1.PartingAgreed, Drain: v1alpha1.DrainWait}), node: closedNode()},
			byEviction, v1alpha1.ReasonParting,
		},
		"we part now": {
			nodeFacts{peer: unpeering(&v1alpha1.PeerParting{Drain: v1alpha1.DrainNow}), node: closedNode()}, byDeletion, v1alpha1.ReasonParting,
		},
		"we part by force": {
			nodeFacts{peer: unpeering(&v1alpha1.PeerParting{Mode: v1alpha1.PartingForced}), node: closedNode()}, byForce, v1alpha1.ReasonParting,
		},
		"we forget the peer": {
			nodeFacts{peer: unpeering(&v1alpha1.PeerParting{Mode: v1alpha1.PartingForgotten}), node: closedNode()}, byForce, v1alpha1.ReasonParting,
		},
		"how to part says nothing before we do": {
			nodeFacts{
				peer: func() *v1alpha1.Peer {
					p := unpeering(&v1alpha1.PeerParting{Mode: v1alpha1.PartingForced})
					p.DeletionTimestamp = nil
					return p
				}(),
				ad: in(v1alpha1.OfferOpen), node: closedNode(),
			}, 0, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, must := leaverOf(podCalled("web-1"), placeFacts{nodeFacts: test.facts})
			if must != (test.event != "") {
				t.Fatalf("must leave: %t", must)
			}
			if must && (got.reason.how != test.how || got.reason.event != test.event) {
				t.Errorf("got %+v", got.reason)
			}
		})
	}
}

func TestWhichPodsAreMoved(t *testing.T) {
	ready := podCalled("a-ready")
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	mirror := podCalled("mirror")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	done := podCalled("done")
	done.Status.Phase = corev1.PodSucceeded
	pods := []corev1.Pod{
		*ready, *podCalled("pending"), *done, *dying("ending", 30), *dying("held", 0), *ofDaemonSet(podCalled("agent")), *mirror,
	}
	for name, test := range map[string]struct {
		how  *v1alpha1.PeerParting
		want []string
	}{
		"by eviction": {nil, []string{"done", "pending", "a-ready"}},
		"by deletion": {&v1alpha1.PeerParting{Drain: v1alpha1.DrainNow}, []string{"done", "pending", "a-ready"}},
		"by force":    {&v1alpha1.PeerParting{Mode: v1alpha1.PartingForced}, []string{"done", "ending", "pending", "a-ready"}},
	} {
		facts := placeFacts{nodeFacts: nodeFacts{peer: unpeering(test.how), node: closedNode()}}
		if diff := cmp.Diff(test.want, names(leavers(pods, func(*corev1.Pod) placeFacts { return facts }))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDrainingProviderIsEmptied(t *testing.T) {
	w := newWorld(t, peer(), in(v1alpha1.OfferDraining), ofReplicaSet(podCalled("web-1")), ofReplicaSet(podCalled("web-2")), dying("old", 30), ofDaemonSet(podCalled("agent")))
	if result := w.reconcileDrain(); result.RequeueAfter != 0 || w.wrote() != nil {
		t.Error("a node that does not exist is drained")
	}
	w.reconcileNode()
	if !isClosed(w.node()) {
		t.Fatal("the node takes more pods")
	}
	w.wrote()

	result := w.reconcileDrain()
	wrote := w.wrote()
	slices.Sort(wrote)
	if diff := cmp.Diff([]string{"home create/eviction Pod web-1", "home create/eviction Pod web-2"}, wrote); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if result.RequeueAfter != 0 {
		t.Errorf("comes back after %s", result.RequeueAfter)
	}
	w.ExpectEvent("Normal PeerDraining Pods were moved away from Node hanse-turin: the peer asks for it")

	w.reconcileDrain()
	w.reconcileNode()
	if got := w.wrote(); got != nil {
		t.Errorf("a second look wrote %v", got)
	}
	w.node() // an empty node stays: the provider is still one
}

func TestPodWaitsForItsBudget(t *testing.T) {
	alone := podCalled("alone")
	alone.Spec.RestartPolicy = corev1.RestartPolicyNever
	w := newWorld(t, unpeering(nil), closedNode(), ofReplicaSet(podCalled("web-1")), alone)
	refusal := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	refusal.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"},
	}
	allow := w.Home.Refuse("create/eviction Pod web-1", refusal)

	expect := func(wantAgain time.Duration, want ...string) {
		t.Helper()
		result := w.reconcileDrain()
		wrote := w.wrote()
		slices.Sort(wrote)
		if diff := cmp.Diff(want, wrote); diff != "" || result.RequeueAfter != wantAgain {
			t.Errorf("comes back after %s, want %s; writes (-want +got):\n%s", result.RequeueAfter, wantAgain, diff)
		}
	}
	expect(firstBlocked, "home create/eviction Pod alone", "home create/eviction Pod web-1")
	w.ExpectEvent("Warning DrainBlocked The pod must leave Node hanse-turin (the Peer is being deleted), and waits for its PodDisruptionBudget: " +
		"The disruption budget web needs 2")
	w.ExpectEvent("Normal Parting Pods were moved away from Node hanse-turin: the Peer is being deleted")
	w.ExpectEvent("Warning DrainBlocked Pods stay on Node hanse-turin")

	expect(firstBlocked) // looked at again: nothing is asked again before its time
	w.Clock.Step(5 * time.Second)
	expect(firstBlocked, "home create/eviction Pod web-1")
	w.Clock.Step(5 * time.Second)
	expect(firstBlocked) // it waits longer now
	w.Clock.Step(5 * time.Second)
	allow()
	expect(0, "home create/eviction Pod web-1")
}

func TestOneRefusalSparesAllOfTheSameController(t *testing.T) {
	objects := []client.Object{unpeering(nil), closedNode()}
	for i := range 50 {
		objects = append(objects, ofReplicaSet(podCalled(fmt.Sprint("web-", i))))
	}
	w := newWorld(t, objects...)
	w.Home.Refuse("create/eviction Pod web-", apierrors.NewTooManyRequests("no", 0))
	w.reconcileDrain()
	if asked := len(w.wrote()); asked == 0 || asked > 2*evictionRequests {
		t.Errorf("%d evictions were asked for", asked)
	}
	if wait := w.evictor.blocked.Get(leaver{pod: ofReplicaSet(podCalled("web-0")), reason: &reason{}}.budget()); wait != firstBlocked {
		t.Errorf("those that were asked at the same time wait for %s", wait)
	}
}

func TestDrainKeepsItsPace(t *testing.T) {
	objects := []client.Object{unpeering(nil), closedNode()}
	for i := range 150 {
		objects = append(objects, ofReplicaSet(podCalled(fmt.Sprint("web-", i))))
	}
	w := newWorld(t, objects...)
	if again := w.reconcileDrain().RequeueAfter; again != evictionPause || len(w.wrote()) != 100 {
		t.Errorf("comes back after %s", again)
	}
	if again := w.reconcileDrain().RequeueAfter; again != evictionPause || len(w.wrote()) != 0 {
		t.Errorf("looked at again, it comes back after %s", again)
	}
	w.Clock.Step(evictionPause)
	if again := w.reconcileDrain().RequeueAfter; again != 0 || len(w.wrote()) != 50 {
		t.Errorf("at last it comes back after %s", again)
	}
}

func TestPodThatCannotBeEvictedStopsNoOther(t *testing.T) {
	lone := podCalled("web-2")
	lone.Spec.RestartPolicy = corev1.RestartPolicyNever
	w := newWorld(t, unpeering(nil), closedNode(), ofReplicaSet(podCalled("web-1")), lone)
	w.Home.Refuse("create/eviction Pod web-1", errors.New("more than one PodDisruptionBudget"))
	if again := w.reconcileDrain().RequeueAfter; again != firstBlocked || len(w.wrote()) != 2 {
		t.Errorf("comes back after %s", again)
	}
	w.ExpectEvent("Warning DrainBlocked The pod must leave Node hanse-turin (the Peer is being deleted), and cannot: more than one")
}

func TestDrainNowDeletes(t *testing.T) {
	w := newWorld(t, unpeering(&v1alpha1.PeerParting{Drain: v1alpha1.DrainNow}), closedNode(), podCalled("web-1"))
	w.reconcileDrain()
	if diff := cmp.Diff([]string{"home delete Pod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	options := w.deletes[0]
	if options.GracePeriodSeconds != nil || *options.Preconditions.UID != "uid-web-1" {
		t.Errorf("deleted with %+v", options)
	}
}

func TestNodeIsClosedAsLongAsTheOfferIs(t *testing.T) {
	w := newWorld(t, peer(), advertisement(), podCalled("web-1"))
	w.reconcileNode()
	node := w.node()
	node.Spec.Unschedulable = true
	w.put(w.Home, node)
	say := func(phase v1alpha1.OfferPhase) {
		t.Helper()
		ad := testkit.Get[v1alpha1.Advertisement](w.Home, tenant, turinID)
		ad.Spec.Phase = phase
		w.put(w.Home, ad)
		w.reconcileNode()
	}
	for _, phase := range []v1alpha1.OfferPhase{v1alpha1.OfferCordoned, v1alpha1.OfferOpen, v1alpha1.OfferLeaving, ""} {
		say(phase)
		open := phase == v1alpha1.OfferOpen || phase == ""
		if isClosed(w.node()) == open || !w.node().Spec.Unschedulable {
			t.Errorf("%q: the node has %+v", phase, w.node().Spec)
		}
	}
}

func TestNodeOfAnIncompatiblePeerIsClosedAndStays(t *testing.T) {
	p := peer()
	testkit.SetCondition(&p.Status.Conditions, v1alpha1.ConditionCompatible, metav1.ConditionFalse, v1alpha1.ReasonIncompatibleVersion)
	w := newWorld(t, p, advertisement(), podCalled("web-1"))
	w.reconcileNode()
	w.wrote()
	w.reconcileDrain()
	if !isClosed(w.node()) || w.wrote() != nil {
		t.Error("the node is open, or its pods are moved")
	}
}

func TestUnknownPeerHasNoNode(t *testing.T) {
	p := peer()
	p.Spec.ClusterID = ""
	nobody := advertisement()
	nobody.Spec.ClusterID = ""
	w := newWorld(t, p, nobody)
	w.reconcileNode()
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
	if w.link() != nil {
		t.Error("there is a link")
	}
}

func TestEndsAreCarriedWhileWePart(t *testing.T) {
	pod := dying("web-1", 30)
	w := newWorld(t, unpeering(nil), offloading(), closedNode(), pod) // as after a restart in the middle of it
	w.put(w.Away, mapping())
	w.put(w.Away, shadowOf(pod))
	w.reconcileNode()
	if w.link() == nil {
		t.Fatal("there is no link to carry the end over")
	}
	w.wrote()
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"remote delete ShadowPod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}

	w.forgetRemote("web-1")
	gone := w.pod("web-1")
	gone.Finalizers = nil
	w.put(w.Home, gone)
	w.reconcileNode()
	if diff := cmp.Diff([]string{"home delete Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	w.reconcileNode()
	if w.link() != nil {
		t.Error("the link outlives the node")
	}
}

func TestForcedPartingAsksThePeerForNothing(t *testing.T) {
	held := podCalled("held")
	held.Finalizers, held.Status.Phase = []string{"batch.kubernetes.io/job-tracking"}, corev1.PodRunning
	w := offloaded(t, held, podCalled("web-1"), dying("ending", 30))
	for _, name := range []string{"held", "web-1", "ending"} {
		w.put(w.Away, shadowOf(podCalled(name)))
	}
	current := testkit.Get[v1alpha1.Peer](w.Home, "", turin)
	current.Finalizers = []string{v1alpha1.FinalizerPeer}
	current.Spec.Parting = &v1alpha1.PeerParting{Mode: v1alpha1.PartingForced}
	w.put(w.Home, current)
	w.remove(w.Home, current)

	w.reconcileNode()
	if diff := cmp.Diff([]string{"home patch Node " + turinNode}, w.wrote()); diff != "" {
		t.Fatalf("writes (-want +got):\n%s", diff)
	}
	if w.link() != nil {
		t.Error("the link is still there")
	}
	w.reconcilePod("ending")
	if got := w.wrote(); got != nil {
		t.Errorf("the pod controller wrote %v", got)
	}

	w.reconcileDrain()
	wrote := w.wrote()
	slices.Sort(wrote)
	want := []string{
		"home delete Pod ending", "home delete Pod held", "home delete Pod web-1",
		"home patch/status Pod ending", "home patch/status Pod held",
	}
	if diff := cmp.Diff(want, wrote); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	for _, options := range w.deletes {
		if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds != 0 {
			t.Errorf("deleted with %+v", options)
		}
	}
	if phase := w.pod("held").Status.Phase; phase != corev1.PodFailed {
		t.Errorf("what keeps the pod sees phase %s", phase)
	}

	w.deletedAtOnce("held")
	w.deletedAtOnce("ending")
	w.reconcileNode()
	if diff := cmp.Diff([]string{"home delete Node " + turinNode}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// deletedAtOnce has the pod look as an API server shows it that was asked to delete it without grace.
func (w *world) deletedAtOnce(name string) {
	w.Helper()
	pod := w.pod(name)
	pod.DeletionGracePeriodSeconds = ptr.To(int64(0))
	w.put(w.Home, pod)
}

func updated(before, after client.Object) event.UpdateEvent {
	return event.UpdateEvent{ObjectOld: before, ObjectNew: after}
}

func names(leavers []leaver) []string {
	var names []string
	for _, one := range leavers {
		names = append(names, one.pod.Name)
	}
	return names
}
