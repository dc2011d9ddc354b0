// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// shop is an Application whose front is at hamburg, whose back is here, and whose queue has no place.
func shop() *v1alpha1.Application {
	component := func(name string) v1alpha1.ApplicationComponent {
		return v1alpha1.ApplicationComponent{Name: name, Replicas: 1, PodLabels: map[string]v1alpha1.LabelValue{"app": v1alpha1.LabelValue(name)}}
	}
	return &v1alpha1.Application{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u-1"},
		Spec:       v1alpha1.ApplicationSpec{Components: []v1alpha1.ApplicationComponent{component("front"), component("back"), component("queue")}},
		Status: v1alpha1.ApplicationStatus{Components: []v1alpha1.PlacedComponent{
			{Name: "front", Peer: "hamburg", Acknowledged: true}, {Name: "back", Acknowledged: true}, {Name: "queue", Peer: "bremen"},
		}},
	}
}

func labelled(app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}}
}

// withComponents is the placement of a namespace about which that was decided, with the Application in it.
func withComponents(t *testing.T, app *v1alpha1.Application, decided v1alpha1.PlacementStatus) Placement {
	t.Helper()
	placement := placed(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote}, decided)
	placement.offloading.Status.Placement.Classes = placement.Components(app, decided)
	return placement
}

func TestPodsGoWhereTheirComponentIs(t *testing.T) {
	placement := withComponents(t, shop(), v1alpha1.PlacementStatus{Nodes: []v1alpha1.NodePlacement{{Name: "hanse-bremen"}, {Name: "hanse-hamburg"}}})
	node := func(peer string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hanse-" + peer, Labels: map[string]string{v1alpha1.LabelPeer: peer}}}
	}
	for app, test := range map[string]struct {
		hamburg, bremen bool // whether the pod may go there
		strategy        v1alpha1.OffloadingStrategy
		gated           bool
		request         string // at hamburg
	}{
		"front": {hamburg: true, strategy: v1alpha1.StrategyRemote, request: "app-u-1"},
		"back":  {strategy: v1alpha1.StrategyLocal},
		"queue": {strategy: v1alpha1.StrategyRemote, gated: true},
		"other": {hamburg: true, bremen: true, strategy: v1alpha1.StrategyLocalAndRemote},
	} {
		t.Run(app, func(t *testing.T) {
			pod := labelled(app)
			if placement.strategyOf(pod) != test.strategy {
				t.Errorf("its strategy is %s", placement.strategyOf(pod))
			}
			if got := placement.Excludes(pod, node("hamburg")); (got == "") != test.hamburg {
				t.Errorf("hamburg: %q", got)
			}
			if got := placement.Excludes(pod, node("bremen")); (got == "") != test.bremen {
				t.Errorf("bremen: %q", got)
			}
			if got := placement.RequestFor(pod, "hanse-hamburg"); got != test.request {
				t.Errorf("it uses %q", got)
			}
			if admission := placement.Decided(pod).Admission; app != "other" && (admission != nil && admission.Gated) != test.gated {
				t.Errorf("admission adds %+v", admission)
			}
		})
	}
}

// What bounds an Application, and what was decided about its namespace, binds each cluster that its pods are sent on to.
func TestBoundsOfAnApplicationHoldOverHops(t *testing.T) {
	app := shop()
	app.Spec.Placement = &v1alpha1.ApplicationPlacement{
		Exclude: []string{"wismar"}, Clusters: []string{"hamburg", "bremen"}, MaxLatency: &metav1.Duration{Duration: 50 * time.Millisecond},
	}
	placement := withComponents(t, app, v1alpha1.PlacementStatus{
		Nodes:          []v1alpha1.NodePlacement{{Name: "hanse-hamburg"}, {Name: "hanse-riga", Excluded: "A policy excludes it"}},
		ExcludedBehind: []string{"c-visby"},
	})
	got := placement.AsksOnward(labelled("front"), func(peer string) string { return "c-" + peer })
	want := &v1alpha1.OnwardPlacement{
		ClusterSelector: &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{{
			Key: v1alpha1.LabelClusterID, Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"c-hamburg", "c-bremen"},
		}}},
		Exclude: []string{"c-riga", "c-visby", "c-wismar"}, MaxLatency: app.Spec.Placement.MaxLatency,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if other := placement.AsksOnward(labelled("other"), func(peer string) string { return "c-" + peer }); cmp.Diff([]string{"c-riga", "c-visby"}, other.Exclude) != "" {
		t.Errorf("other pods are bound by %+v", other)
	}
}

// Pods of a component that clusters share are spread by the shares, those of each owner by themselves.
func TestPodsAreSpreadOverTheClustersThatShareTheirComponent(t *testing.T) {
	app := shop()
	app.Spec.Components = app.Spec.Components[:1]
	app.Spec.Components[0].Weights = []v1alpha1.ClusterWeight{{Peer: "hamburg", Weight: 2}, {Weight: 1}}
	app.Status.Components = []v1alpha1.PlacedComponent{
		{Name: "front", Peer: "hamburg", Replicas: 4, Acknowledged: true}, {Name: "front", Replicas: 2, Acknowledged: true},
	}
	placement := withComponents(t, app, v1alpha1.PlacementStatus{Nodes: []v1alpha1.NodePlacement{{Name: "hanse-hamburg"}}})
	waiting := func(owner types.UID) *corev1.Pod {
		pod := labelled("front")
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateNoClusterFits}}
		pod.OwnerReferences = []metav1.OwnerReference{{UID: owner, Controller: ptr.To(true)}}
		return pod
	}
	none := app.DeepCopy()
	none.Status.Components[0].Acknowledged = false
	asked := withComponents(t, none, v1alpha1.PlacementStatus{})
	first := asked.NewShares(nil).Next(waiting("old"))
	if _, changed := asked.Release(first, func(string) bool { return true }); changed || first.Annotations[v1alpha1.AnnotationShare] != "hanse-hamburg" {
		t.Errorf("others take over the share of a cluster that has not answered: %v", first.Annotations)
	}
	if !placement.Decided(waiting("old")).Admission.Gated {
		t.Fatal("admission lets them go")
	}
	running := labelled("front")
	running.OwnerReferences = waiting("old").OwnerReferences
	running.Annotations = map[string]string{v1alpha1.AnnotationShare: "hanse-hamburg"}
	running.Spec.NodeName = "hanse-hamburg"
	shares := placement.NewShares([]corev1.Pod{*running})
	room := func(node string) bool { return node == "hanse-hamburg" }
	for owner, want := range map[types.UID]map[string]int{
		"new": {"hanse-hamburg": 4, "home": 2},
		"old": {"hanse-hamburg": 3, "home": 2}, // one of them is running
	} {
		got := map[string]int{}
		for range want["hanse-hamburg"] + want["home"] {
			released, changed := placement.Release(shares.Next(waiting(owner)), room)
			if !changed || Gated(released) {
				t.Fatal("it is not released")
			}
			shares.Count(released)
			share := released.Annotations[v1alpha1.AnnotationShare]
			got[share]++
			if used := placement.RequestFor(released, "hanse-hamburg"); (used != "") != (share == "hanse-hamburg") {
				t.Errorf("of %s it uses %q", share, used)
			}
			if leaves := ToleratesVirtualNodes(released); leaves != (share == "hanse-hamburg") {
				t.Errorf("of %s it leaves: %v", share, leaves)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", owner, diff)
		}
	}
}
