// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var south = map[string]v1alpha1.LabelValue{"region": "south"}

func bare(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
}

func web(name, node string) *corev1.Pod { return ofReplicaSet(bare(name, node)) }

func annotated(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Annotations = map[string]string{key: value}
	return pod
}

func closedNodeOf(peer string, labels map[string]string) *corev1.Node {
	return testkit.VirtualNode(peer, labels)
}

func openNode(peer string, labels map[string]string) *corev1.Node {
	node := testkit.VirtualNode(peer, labels)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

func TestWhichPodsAreMisplaced(t *testing.T) {
	ended, ending := web("ended", "hanse-turin"), web("ending", "hanse-turin")
	ended.Status.Phase = corev1.PodSucceeded
	ending.DeletionTimestamp = ptr.To(metav1.Now())
	classy := web("classy", "hanse-bergen")
	classy.Labels = map[string]string{"tier": "front"}
	pods := []corev1.Pod{
		*web("in-turin", "hanse-turin"), *web("in-bergen", "hanse-bergen"), *classy, *ended, *ending,
		*bare("bare-in-turin", "hanse-turin"), *web("at-home", "worker"), *bare("bare-at-home", "worker"),
		*lone(bare("lone-in-turin", "hanse-turin")), *lone(bare("lone-at-home", "worker")),
		*ofDaemonSet(bare("agent", "worker")),
		*ofDaemonSet(bare("agent-in-turin", "hanse-turin")),
		*annotated(web("mirror", "worker"), corev1.MirrorPodAnnotationKey, "x"),
		*annotated(web("db", "worker"), v1alpha1.AnnotationRunsAtHome, "it uses a volume"),
		*web("pending", ""), *web("on-a-node-that-is-gone", "hanse-riga"),
	}
	open := []corev1.Node{*openNode("turin", map[string]string{"region": "south"}), *openNode("bergen", nil)}
	closed := []corev1.Node{*closedNodeOf("turin", map[string]string{"region": "south"}), *closedNodeOf("bergen", nil)}
	exclude := func(peers ...string) *v1alpha1.NamespacePlacement {
		return &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: peers}}
	}
	ofClass := exclude("turin")
	ofClass.Classes = []v1alpha1.PlacementClass{{
		Name: "front", PodLabels: map[string]v1alpha1.LabelValue{"tier": "front"},
		Placement: v1alpha1.Placement{Exclude: []string{"bergen"}},
	}}
	everywhere := []string{"classy", "in-bergen", "in-turin", "lone-in-turin"}
	for name, test := range map[string]struct {
		spec  v1alpha1.NamespaceOffloadingSpec
		nodes []corev1.Node
		want  []string
	}{
		"home now":                       {v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocal}, open, everywhere},
		"home or elsewhere":              {v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote}, open, nil},
		"elsewhere now":                  {v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}, open, []string{"at-home", "lone-at-home"}},
		"elsewhere, where no node is":    {v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}, closed, nil},
		"in the south now":               {v1alpha1.NamespaceOffloadingSpec{ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: south}}, open, []string{"classy", "in-bergen"}},
		"not in turin":                   {v1alpha1.NamespaceOffloadingSpec{Placement: exclude("turin")}, open, []string{"in-turin", "lone-in-turin"}},
		"a class not in bergen, besides": {v1alpha1.NamespaceOffloadingSpec{Placement: ofClass}, open, []string{"classy", "in-turin", "lone-in-turin"}},
		"elsewhere, but nowhere": {
			v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, Placement: exclude("turin", "bergen")}, open, everywhere,
		},
	} {
		t.Run(name, func(t *testing.T) {
			placement, err := offload.NewPlacement(&v1alpha1.NamespaceOffloading{Spec: test.spec})
			if err != nil {
				t.Fatal(err)
			}
			got := names(leavers(pods, func(pod *corev1.Pod) placeFacts { return misplacedFacts(pod, &placement, test.nodes) }))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("misplaced (-want +got):\n%s", diff)
			}
		})
	}
}

func (w *world) evict() time.Duration {
	w.Helper()
	return w.Reconcile(w.evictor, "shop", v1alpha1.NamespaceOffloadingName).RequeueAfter
}

func offloadingThat(strategy v1alpha1.OffloadingStrategy, mode v1alpha1.ChangeMode) *v1alpha1.NamespaceOffloading {
	o := testkit.Offloading("shop")
	o.Spec.Strategy, o.Spec.OnChange = strategy, mode
	return o
}

func TestPodsStayUnlessTheUserWantsThemMoved(t *testing.T) {
	for mode, want := range map[v1alpha1.ChangeMode][]string{
		v1alpha1.ChangeKeep: nil, "": nil, v1alpha1.ChangeEvict: {"home create/eviction Pod web-1"},
	} {
		w := newWorld(t, offloadingThat(v1alpha1.StrategyLocal, mode), openNode("turin", nil), web("web-1", "hanse-turin"))
		w.evict()
		if diff := cmp.Diff(want, w.wrote()); diff != "" {
			t.Errorf("with onChange %q (-want +got):\n%s", mode, diff)
		}
		if want != nil {
			w.ExpectEvent("Normal OffloadingChanged The pod was evicted, since the NamespaceOffloading does not let it run on Node hanse-turin: strategy is Local")
		}
	}
}

func TestBudgetsAreKeptWhenAnOffloadingChanges(t *testing.T) {
	w := newWorld(t, offloadingThat(v1alpha1.StrategyLocal, v1alpha1.ChangeEvict), openNode("turin", nil), web("web-1", "hanse-turin"))
	allow := w.Home.Refuse("create/eviction Pod web-1", apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0))
	if again := w.evict(); again != firstBlocked {
		t.Errorf("it tries again in %s", again)
	}
	w.ExpectEvent("Warning OffloadingChanged The pod must leave Node hanse-turin (strategy is Local), and may not yet: ")
	w.wrote()
	allow()
	if w.evict(); w.wrote() != nil {
		t.Error("a pod is tried again at once")
	}
	w.Clock.Step(firstBlocked + time.Second)
	if again := w.evict(); again != 0 || len(w.wrote()) != 1 {
		t.Errorf("the pod stays, and it goes on in %s", again)
	}
}

// Admission has not marked pods that are older than the offloading.
func TestPodsThatCannotLeaveAreLeftAtHome(t *testing.T) {
	old := web("db", "worker")
	old.Spec.HostNetwork = true
	w := newWorld(t, offloadingThat(v1alpha1.StrategyRemote, v1alpha1.ChangeEvict), openNode("turin", nil), old, web("web-1", "worker"))
	w.evict()
	if diff := cmp.Diff([]string{"home create/eviction Pod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestEveryNamespaceIsLookedAtWhenANodeOpens(t *testing.T) {
	w := newWorld(t, offloadingThat(v1alpha1.StrategyRemote, v1alpha1.ChangeEvict), testkit.Offloading("bank"))
	if got := w.evictor.ofAllNamespaces(t.Context(), openNode("turin", nil)); len(got) != 2 {
		t.Errorf("requests: %v", got)
	}
	before, after := closedNodeOf("turin", nil), openNode("turin", nil)
	if !opens().Update(updated(before, after)) || opens().Update(updated(after, after)) {
		t.Error("a node that begins to take pods is news, and only then")
	}
}

func TestNodeControllerSeesPodsGo(t *testing.T) {
	alive, cut := podCalled("web-1"), dying("web-1", 0)
	if !goes().Update(updated(alive, cut)) || goes().Update(updated(cut, cut)) || goes().Update(updated(alive, dying("web-1", 30))) {
		t.Error("a pod that only finalizers keep is not seen once")
	}
	free := podCalled("web-1")
	free.Spec.NodeName = ""
	if !binds().Update(updated(free, alive)) || binds().Update(updated(alive, cut)) {
		t.Error("the binding of a pod is not seen once")
	}
	open := closedNode()
	open.Spec.Taints = ownTaints
	if !closes().Update(updated(open, closedNode())) || closes().Update(updated(closedNode(), open)) {
		t.Error("the closing of a node is not seen")
	}
}
