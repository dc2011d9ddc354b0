package namespaces

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// rules are what a user wrote about where pods may run. What is decided anew all the time, such as by prices, is no part
// of them: pods that run are not moved about for it.
type rules struct {
	offloading *v1alpha1.NamespaceOffloading
	selector   labels.Selector
	nodes      map[string]*corev1.Node // name of a virtual node → the node
}

func newRules(offloading *v1alpha1.NamespaceOffloading, nodes []corev1.Node) (rules, error) {
	selector, err := offloading.Spec.ClusterSelector.Selector()
	if err != nil {
		return rules{}, err
	}
	byName := make(map[string]*corev1.Node, len(nodes))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	return rules{offloading: offloading, selector: selector, nodes: byName}, nil
}

// move is a pod that runs where new ones may not, with the cause in words for its author.
type move struct {
	pod   *corev1.Pod
	cause string
	home  bool // it runs at home
}

// misplaced returns the pods that must move, sorted by name. They are the cache's own and must not be changed.
func (r rules) misplaced(pods []corev1.Pod) []move {
	var moves []move
	for i := range pods {
		pod := &pods[i]
		if !isMovable(pod) {
			continue
		}
		if node, away := r.nodes[pod.Spec.NodeName]; away {
			if cause := r.against(pod, node); cause != "" {
				moves = append(moves, move{pod: pod, cause: cause})
			}
		} else if r.mayHaveToLeave(pod) {
			moves = append(moves, move{pod: pod, cause: "strategy is Remote", home: true})
		}
	}
	slices.SortFunc(moves, func(a, b move) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	return moves
}

// isMovable leaves out pods that do not run, are going already, belong to their node, or that nobody would make again:
// to move those is their author's to do.
func isMovable(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	owner := metav1.GetControllerOf(pod)
	remade := !mirror && owner != nil && owner.Kind != "DaemonSet" && owner.Kind != "Node"
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp.IsZero() && remade && !ended
}

// against is what speaks against the pod on a virtual node.
func (r rules) against(pod *corev1.Pod, node *corev1.Node) string {
	switch {
	case r.offloading.Spec.Strategy == v1alpha1.StrategyLocal:
		return "strategy is Local"
	case !r.selector.Matches(labels.Set(node.Labels)):
		return "clusterSelector does not match the node"
	case slices.Contains(r.excluded(pod), node.Labels[v1alpha1.LabelPeer]):
		return "placement excludes peer " + node.Labels[v1alpha1.LabelPeer]
	default:
		return ""
	}
}

// excluded are the peers that the pod must not run in, by the namespace and by the first class that it belongs to.
func (r rules) excluded(pod *corev1.Pod) []string {
	placement := r.offloading.Spec.Placement
	if placement == nil {
		return nil
	}
	for i := range placement.Classes {
		if isOf(&placement.Classes[i], pod) {
			return slices.Concat(placement.Exclude, placement.Classes[i].Exclude)
		}
	}
	return placement.Exclude
}

func isOf(class *v1alpha1.PlacementClass, pod *corev1.Pod) bool {
	for key, value := range class.PodLabels {
		if has, ok := pod.Labels[key]; !ok || has != string(value) {
			return false
		}
	}
	return true
}

// mayHaveToLeave reports whether a pod at home is one that strategy Remote would send away, as far as a trimmed pod can
// tell: there must be somewhere to go.
func (r rules) mayHaveToLeave(pod *corev1.Pod) bool {
	_, staysHome := pod.Annotations[v1alpha1.AnnotationRunsAtHome]
	return r.offloading.Spec.Strategy == v1alpha1.StrategyRemote && !staysHome && !maybeAway(pod) && r.hasPlaceFor(pod)
}

// hasPlaceFor reports whether a virtual node takes such a pod.
func (r rules) hasPlaceFor(pod *corev1.Pod) bool {
	for _, node := range r.nodes {
		if takesPods(node) && r.against(pod, node) == "" {
			return true
		}
	}
	return false
}

// takesPods reports whether the node is ready and not closed.
func takesPods(node *corev1.Node) bool {
	closed := node.Spec.Unschedulable ||
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintWithdrawn })
	return !closed && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
