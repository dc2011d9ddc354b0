package namespaces

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func ownedBy(pod *corev1.Pod, kind, name string) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: ptr.To(true),
	}}
	return pod
}

func web(name, node string) *corev1.Pod {
	pod := ownedBy(podOn("shop", name, node), "ReplicaSet", "web")
	pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	return pod
}

func annotated(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Annotations = map[string]string{key: value}
	return pod
}

func openNode(peer string, labels map[string]string) *corev1.Node {
	node := virtualNode(peer, labels)
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
		*podOn("shop", "bare-in-turin", "hanse-turin"), *web("at-home", "worker"), *podOn("shop", "bare-at-home", "worker"),
		*ownedBy(podOn("shop", "agent", "worker"), "DaemonSet", "agent"),
		*ownedBy(podOn("shop", "agent-in-turin", "hanse-turin"), "DaemonSet", "agent"),
		*annotated(web("mirror", "worker"), corev1.MirrorPodAnnotationKey, "x"),
		*annotated(web("db", "worker"), v1alpha1.AnnotationRunsAtHome, "it uses a volume"),
		*web("pending", ""), *web("on-a-node-that-is-gone", "hanse-riga"),
	}
	open := []corev1.Node{*openNode("turin", map[string]string{"region": "south"}), *openNode("bergen", nil)}
	closed := []corev1.Node{*virtualNode("turin", map[string]string{"region": "south"}), *virtualNode("bergen", nil)}
	exclude := func(peers ...string) *v1alpha1.NamespacePlacement {
		return &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: peers}}
	}
	ofClass := exclude("turin")
	ofClass.Classes = []v1alpha1.PlacementClass{{
		Name: "front", PodLabels: map[string]v1alpha1.LabelValue{"tier": "front"},
		Placement: v1alpha1.Placement{Exclude: []string{"bergen"}},
	}}
	everywhere := []string{"classy", "in-bergen", "in-turin"}
	for name, test := range map[string]struct {
		spec  v1alpha1.NamespaceOffloadingSpec
		nodes []corev1.Node
		want  []string
	}{
		"home now":                       {v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocal}, open, everywhere},
		"home or elsewhere":              {v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote}, open, nil},
		"elsewhere now":                  {v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}, open, []string{"at-home"}},
		"elsewhere, where no node is":    {v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}, closed, nil},
		"in the south now":               {v1alpha1.NamespaceOffloadingSpec{ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: south}}, open, []string{"classy", "in-bergen"}},
		"not in turin":                   {v1alpha1.NamespaceOffloadingSpec{Placement: exclude("turin")}, open, []string{"in-turin"}},
		"a class not in bergen, besides": {v1alpha1.NamespaceOffloadingSpec{Placement: ofClass}, open, []string{"classy", "in-turin"}},
		"elsewhere, but nowhere": {
			v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, Placement: exclude("turin", "bergen")}, open, everywhere,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := newRules(&v1alpha1.NamespaceOffloading{Spec: test.spec}, test.nodes)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range rules.misplaced(pods) {
				got = append(got, m.pod.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("misplaced (-want +got):\n%s", diff)
			}
		})
	}
}

// podNames are the names of the pods at home.
func (w *world) podNames() []string {
	w.t.Helper()
	pods := &corev1.PodList{}
	if err := w.home.List(w.t.Context(), pods); err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return names
}

func (w *world) evict() time.Duration {
	w.t.Helper()
	result, err := w.controller.evictor.Reconcile(w.t.Context(), offloadingIn("shop"))
	if err != nil {
		w.t.Fatal(err)
	}
	return result.RequeueAfter
}

func offloadingThat(strategy v1alpha1.OffloadingStrategy, mode v1alpha1.ChangeMode) *v1alpha1.NamespaceOffloading {
	o := offloadingWith("shop", strategy, nil)
	o.Spec.OnChange = mode
	return o
}

func TestPodsStayUnlessTheUserWantsThemMoved(t *testing.T) {
	for mode, want := range map[v1alpha1.ChangeMode][]string{
		v1alpha1.ChangeKeep: {"web-1"}, "": {"web-1"}, v1alpha1.ChangeEvict: nil,
	} {
		w := newWorld(t, offloadingThat(v1alpha1.StrategyLocal, mode), openNode("turin", nil), web("web-1", "hanse-turin"))
		w.evict()
		if diff := cmp.Diff(want, w.podNames()); diff != "" {
			t.Errorf("with onChange %q (-want +got):\n%s", mode, diff)
		}
		if want == nil {
			events := w.events()
			if len(events) != 1 || events[0].Reason != v1alpha1.ReasonOffloadingChanged || !strings.Contains(events[0].Note, "strategy is Local") {
				t.Errorf("events: %+v", events)
			}
		}
	}
}

func TestEvictionsKeepTheirPace(t *testing.T) {
	objects := []client.Object{offloadingThat(v1alpha1.StrategyLocal, v1alpha1.ChangeEvict), openNode("turin", nil)}
	for i := range 2 * evictionsPerSecond {
		objects = append(objects, web(fmt.Sprintf("web-%02d", i), "hanse-turin"))
	}
	w := newWorld(t, objects...)
	if again := w.evict(); again != evictionPause {
		t.Errorf("it goes on in %s", again)
	}
	if got := len(w.podNames()); got != evictionsPerSecond {
		t.Errorf("%d pods are left, want %d", got, evictionsPerSecond)
	}
	w.clock.Step(evictionPause)
	if again := w.evict(); again != 0 || len(w.podNames()) != 0 {
		t.Errorf("%d pods are left, and it goes on in %s", len(w.podNames()), again)
	}
}

func TestBudgetsAreKept(t *testing.T) {
	w := newWorld(t, offloadingThat(v1alpha1.StrategyLocal, v1alpha1.ChangeEvict), openNode("turin", nil),
		web("web-1", "hanse-turin"), web("web-2", "hanse-turin"), ownedBy(podOn("shop", "job-1", "hanse-turin"), "Job", "job"))
	w.budget = map[string]bool{"web": true}
	if again := w.evict(); again != firstBlocked {
		t.Errorf("it tries again in %s", again)
	}
	if diff := cmp.Diff([]string{"web-1", "web-2"}, w.podNames()); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	var notes []string
	for _, e := range w.events() {
		notes = append(notes, e.Name)
	}
	slices.Sort(notes)
	// web-2 shares the budget, and is not asked for in vain.
	if diff := cmp.Diff([]string{"offloading-blocked.web-1-uid", "offloading-changed.job-1-uid"}, notes); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	w.budget = nil
	if w.evict(); len(w.podNames()) != 2 {
		t.Error("a pod is tried again at once")
	}
	w.clock.Step(firstBlocked + time.Second)
	if w.evict(); len(w.podNames()) != 0 {
		t.Errorf("pods stay: %v", w.podNames())
	}
}

// Admission has not marked pods that are older than the offloading.
func TestPodsThatCannotLeaveAreLeftAtHome(t *testing.T) {
	old := web("db", "worker")
	old.Spec.HostNetwork = true
	w := newWorld(t, offloadingThat(v1alpha1.StrategyRemote, v1alpha1.ChangeEvict), openNode("turin", nil), old, web("web-1", "worker"))
	w.evict()
	if diff := cmp.Diff([]string{"db"}, w.podNames()); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if _, known := w.controller.evictor.homebound.Get(old.UID); !known {
		t.Error("the pod will be read again each time")
	}
}

func TestEveryEvictingNamespaceIsLookedAtWhenANodeOpens(t *testing.T) {
	bank := offloadingWith("bank", v1alpha1.StrategyRemote, nil)
	w := newWorld(t, offloadingThat(v1alpha1.StrategyRemote, v1alpha1.ChangeEvict), bank)
	got := w.controller.evictor.everyEvicting(t.Context(), openNode("turin", nil))
	if len(got) != 1 || got[0].Namespace != "shop" {
		t.Errorf("requests: %v", got)
	}
	before, after := virtualNode("turin", nil), openNode("turin", nil)
	if !virtualNodeOpens.Update(updateOf(before, after)) || virtualNodeOpens.Update(updateOf(after, after)) {
		t.Error("a node that begins to take pods is news, and only then")
	}
}
