// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestStatusTellsHowEachPeerStands(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil),
		provider("turin"), virtualNode("turin", nil),
		provider("bergen"), virtualNode("bergen", nil),
		provider("riga"), virtualNode("riga", nil),
	)
	w.connect("turin", "bergen")
	w.settle("shop")
	w.peers["turin"].answer(t, "shop", twin("shop-lubeck-abcdef"))
	w.peers["bergen"].answer(t, "shop", refused(v1alpha1.ReasonNamespaceForbidden, "system namespaces are not offloaded"))
	w.settle("shop")

	got := w.offloading("shop").Status
	want := []v1alpha1.ClusterOffloading{
		{Peer: "bergen", State: stateRefused, Message: "NamespaceForbidden: system namespaces are not offloaded"},
		{Peer: "riga", State: statePending, Message: "There is no connection to the peer: see the conditions of its Peer"},
		{Peer: "turin", State: stateReady, Twin: "shop-lubeck-abcdef"},
	}
	if diff := cmp.Diff(want, got.Clusters); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	condition := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
	if condition == nil || condition.Reason != stateRefused || condition.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v, want False with reason %s", condition, stateRefused)
	}
}

// answerOf is how the offloading to a peer stands that has answered this.
func answerOf(peer string, status v1alpha1.NamespaceMappingStatus) v1alpha1.ClusterOffloading {
	return standing(v1alpha1.ClusterOffloading{Peer: peer, State: statePending}, &v1alpha1.NamespaceMapping{Status: status}, "")
}

func TestReadiness(t *testing.T) {
	type clusters = []v1alpha1.ClusterOffloading
	for name, test := range map[string]struct {
		strategy v1alpha1.OffloadingStrategy
		clusters clusters
		want     metav1.ConditionStatus
		reason   string
	}{
		"no peer is selected":           {want: metav1.ConditionFalse, reason: v1alpha1.ReasonPending},
		"pods stay at home":             {strategy: v1alpha1.StrategyLocal, want: metav1.ConditionTrue, reason: v1alpha1.ReasonReady},
		"every peer has a twin":         {clusters: clusters{answerOf("a", twin("x")), answerOf("b", twin("y"))}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonReady},
		"one peer has not answered":     {clusters: clusters{answerOf("a", twin("x")), answerOf("b", v1alpha1.NamespaceMappingStatus{})}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonPending},
		"one peer was not asked yet":    {clusters: clusters{standing(v1alpha1.ClusterOffloading{Peer: "a", State: statePending}, nil, "")}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonPending},
		"a twin with an absurd name":    {clusters: clusters{answerOf("a", twin(strings.Repeat("x", 64)))}, want: metav1.ConditionFalse, reason: stateRefused},
		"the peer waits for a deletion": {clusters: clusters{answerOf("a", refused(v1alpha1.ReasonNamespaceTerminating, ""))}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonPending},
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(facts{offloading: offloadingWith("shop", test.strategy, nil), clusters: test.clusters}, time.Time{})
			got := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if got.Status != test.want || got.Reason != test.reason {
				t.Errorf("%s with reason %s, want %s with %s", got.Status, got.Reason, test.want, test.reason)
			}
		})
	}
}

func TestWhatAPeerSaysIsBounded(t *testing.T) {
	message := answerOf("a", refused("Absurd", strings.Repeat("ä", 4096))).Message
	if len(message) > maxMessage || !strings.HasSuffix(message, "ä...") {
		t.Errorf("message of %d bytes that ends in %q", len(message), message[len(message)-4:])
	}
}

func TestStatusListsNoMoreThanTheAPIAllows(t *testing.T) {
	status := statusOf(facts{offloading: offloadingWith("shop", "", nil), clusters: make([]v1alpha1.ClusterOffloading, 2*maxClusters)}, time.Time{})
	if got := len(status.Clusters); got != maxClusters {
		t.Errorf("%d clusters, want %d", got, maxClusters)
	}
}

func TestEventSaysWhyAPodRunsAtHome(t *testing.T) {
	marked := func() *corev1.Pod {
		pod := podOn("shop", "db-0", "worker")
		pod.Annotations = map[string]string{v1alpha1.AnnotationRunsAtHome: "call +49 30 000 to have your account unlocked"}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/data"},
		}}}
		pod.CreationTimestamp = metav1.Date(2026, 3, 1, 11, 59, 0, 0, time.UTC)
		return pod
	}
	invented := marked() // by its author, who wants others to believe that Hanse says so
	invented.Spec.Volumes = nil
	old := marked()
	old.CreationTimestamp = metav1.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	remote := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
	for name, test := range map[string]struct {
		objects []client.Object
		want    int
	}{
		"under strategy Remote, once":     {[]client.Object{remote, marked()}, 1},
		"not under LocalAndRemote":        {[]client.Object{offloadingWith("shop", v1alpha1.StrategyLocalAndRemote, nil), marked()}, 0},
		"not in a namespace at home":      {[]client.Object{marked()}, 0},
		"not about a pod that may go out": {[]client.Object{remote, podOn("shop", "db-0", "hanse-turin")}, 0},
		"not about yesterday's pod":       {[]client.Object{remote, old}, 0},
		"not about one that can leave":    {[]client.Object{remote, invented}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.objects...)
			w.reconcileTwice(t)
			events := w.podEvents()
			if len(events) != test.want {
				t.Fatalf("%d events, want %d", len(events), test.want)
			}
			for _, e := range events {
				if e.Reason != v1alpha1.ReasonRunsAtHome || !strings.Contains(e.Note, "nfs") ||
					strings.Contains(e.Note, "account") {
					t.Errorf("event %q: %q", e.Reason, e.Note)
				}
				if diff := cmp.Diff("db-0", e.Regarding.Name, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("regarding (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestPodThatIsSeenBeforeItsOffloadingIsToldOfLater(t *testing.T) {
	kept, other := podOn("shop", "db-0", "worker"), podOn("shop", "web-0", "worker")
	kept.Annotations = map[string]string{v1alpha1.AnnotationRunsAtHome: "volume \"host\" is not taken along yet"}
	kept.CreationTimestamp = metav1.NewTime(newWorld(t).clock.Now())
	kept.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	w := newWorld(t, kept, other)
	w.reconcileTwice(t)
	if told := w.podEvents(); len(told) > 0 {
		t.Fatalf("told without a NamespaceOffloading: %v", told)
	}
	offloading := offloadingWith("shop", v1alpha1.StrategyRemote, nil)
	if err := w.home.Create(t.Context(), offloading); err != nil {
		t.Fatal(err)
	}
	for _, request := range w.controller.homebound.podsOf(t.Context(), offloading) {
		if request.Name == other.Name {
			t.Error("a pod is looked at that admission has not kept at home")
		}
		w.mustReconcile(w.controller.homebound, request)
	}
	if told := w.podEvents(); len(told) != 1 || told[0].Reason != v1alpha1.ReasonRunsAtHome {
		t.Errorf("told %v", told)
	}
}

func (w *world) reconcileTwice(t *testing.T) {
	t.Helper()
	request := offloadingIn("shop")
	request.Name = "db-0"
	for range 2 {
		w.mustReconcile(w.controller.homebound, request)
	}
}

func updateOf(before, after client.Object) event.UpdateEvent {
	return event.UpdateEvent{ObjectOld: before, ObjectNew: after}
}

// Versions before had two owners of the status, and no apply of one takes away what the other has applied.
func TestWhatAFormerOwnerWroteGoesAway(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyLocal, nil), namespace("shop", nil))
	offloading := w.offloading("shop")
	offloading.Status.Placement = &v1alpha1.NamespacePlacementStatus{}
	offloading.Status.Placement.Strict = true
	meta.SetStatusCondition(&offloading.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
	})
	w.update(offloading)
	w.settle("shop")
	status := w.offloading("shop").Status
	if status.Placement != nil || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPlaced) != nil || w.writes != 1 {
		t.Errorf("after %d writes the status is %+v", w.writes, status)
	}
}

func TestOneWriteTellsAll(t *testing.T) {
	w := newWorld(t, offloadingWith("shop", v1alpha1.StrategyRemote, nil), namespace("shop", nil), provider("turin"), virtualNode("turin", nil))
	w.connect("turin")
	w.settle("shop")
	status := w.offloading("shop").Status
	if w.writes != 1 || len(status.Clusters) != 1 || status.Placement == nil || len(status.Conditions) != 2 {
		t.Errorf("after %d writes the status is %+v", w.writes, status)
	}
}
