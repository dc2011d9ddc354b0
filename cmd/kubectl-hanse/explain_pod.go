package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// podExplained is what `explain pod` shows. Its JSON is for scripts: fields are added, never renamed.
type podExplained struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Where     podPlace     `json:"where"`
	Why       podChoice    `json:"why"`
	State     podState     `json:"state"`
	Problems  []podProblem `json:"problems"`
	Hidden    []string     `json:"hidden,omitempty"` // what the user may not see
}

// Values of podPlace.Kind.
const (
	placeNone    = "None"
	placeHome    = "Home"
	placeVirtual = "VirtualNode"
)

// podPlace is where the pod runs.
type podPlace struct {
	Kind          string       `json:"kind"`
	Node          string       `json:"node,omitempty"`
	Peer          string       `json:"peer,omitempty"`
	ClusterID     string       `json:"clusterID,omitempty"`
	TwinNamespace string       `json:"twinNamespace,omitempty"`
	Since         *metav1.Time `json:"since,omitempty"`
}

// podChoice is why the pod runs there: what the user and the placement say now.
type podChoice struct {
	Strategy   v1alpha1.OffloadingStrategy `json:"strategy,omitempty"`
	Reasons    []string                    `json:"reasons"`
	Candidates []podCandidate              `json:"candidates,omitempty"`
}

// podCandidate is a virtual node that the pod could be on, or why it could not.
type podCandidate struct {
	Node     string `json:"node"`
	Weight   int32  `json:"weight"`
	Price    string `json:"price,omitempty"` // of one core with 1Gi, for an hour
	Excluded string `json:"excluded,omitempty"`
}

// podState is how the pod is, as its status here says. Of a remote pod that is what the provider says.
type podState struct {
	Phase      corev1.PodPhase  `json:"phase"`
	Ready      bool             `json:"ready"`
	Reason     string           `json:"reason,omitempty"`
	Message    string           `json:"message,omitempty"`
	Restarts   int32            `json:"restarts"`
	Containers []containerState `json:"containers,omitempty"`
}

type containerState struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
	Restarts int32  `json:"restarts"`
}

// explainPod says all that the facts say. Equal facts give an equal answer.
func explainPod(f podFacts) podExplained {
	where := placeOf(f)
	found := podExplained{
		Namespace: f.pod.Namespace, Name: f.pod.Name, Where: where, Why: choiceOf(f, where), State: stateOfPod(f.pod),
		Problems: problemsOf(f, where), Hidden: f.hidden,
	}
	if found.Problems == nil {
		found.Problems = []podProblem{}
	}
	return found
}

func placeOf(f podFacts) podPlace {
	if f.pod.Spec.NodeName == "" {
		return podPlace{Kind: placeNone}
	}
	place := podPlace{Kind: placeHome, Node: f.pod.Spec.NodeName, Since: f.pod.Status.StartTime}
	if bound := podCondition(f.pod, corev1.PodScheduled); bound != nil && bound.Status == corev1.ConditionTrue && !bound.LastTransitionTime.IsZero() {
		place.Since = &bound.LastTransitionTime
	}
	peer, virtual := strings.CutPrefix(place.Node, v1alpha1.VirtualNodePrefix) // all that a user knows who may not see nodes
	if f.node != nil {
		peer, virtual = f.node.Labels[v1alpha1.LabelPeer], f.node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
		place.ClusterID = f.node.Labels[v1alpha1.LabelClusterID]
	}
	if !virtual {
		place.ClusterID = ""
		return place
	}
	place.Kind, place.Peer = placeVirtual, peer
	if cluster := f.offloadingTo(peer); cluster != nil {
		place.TwinNamespace = cluster.Twin
	}
	if known := f.peer(peer); known != nil && place.ClusterID == "" {
		place.ClusterID = known.Spec.ClusterID
	}
	return place
}

// offloadingTo is how the offloading of the namespace to the peer stands.
func (f podFacts) offloadingTo(peer string) *v1alpha1.ClusterOffloading {
	if f.offloading == nil {
		return nil
	}
	i := slices.IndexFunc(f.offloading.Status.Clusters, func(c v1alpha1.ClusterOffloading) bool { return c.Peer == peer })
	if i < 0 {
		return nil
	}
	return &f.offloading.Status.Clusters[i]
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

func isPodReady(pod *corev1.Pod) bool {
	ready := podCondition(pod, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

func choiceOf(f podFacts, where podPlace) podChoice {
	switch {
	case slices.Contains(f.hidden, hiddenOffloading):
		return podChoice{Reasons: []string{"You may not see whether the namespace is offloaded"}}
	case f.offloading == nil && where.Kind == placeVirtual:
		return podChoice{Reasons: []string{"It was placed while the namespace was offloaded, or chose its node itself: the namespace is not offloaded now"}}
	case f.offloading == nil:
		return podChoice{Reasons: []string{"The namespace is not offloaded, so the pod is placed as if there were no Hanse"}}
	}
	placement, err := offload.NewPlacement(f.offloading)
	if err != nil {
		return podChoice{Reasons: []string{"The cluster selector of the namespace makes no sense: " + err.Error()}}
	}
	choice := podChoice{Strategy: placement.Strategy(), Reasons: reasonsOf(f, where, placement)}
	if choice.Strategy != v1alpha1.StrategyLocal && f.pod.Annotations[v1alpha1.AnnotationRunsAtHome] == "" {
		choice.Candidates = f.candidates(placement)
	}
	return choice
}

func reasonsOf(f podFacts, where podPlace, placement offload.Placement) []string {
	var reasons []string
	add := func(text string, args ...any) { reasons = append(reasons, fmt.Sprintf(text, args...)) }
	if isOfDaemonSet(f.pod) {
		add("It belongs to a DaemonSet, whose pods stay on the nodes that they are made for")
	}
	if cause := f.pod.Annotations[v1alpha1.AnnotationRunsAtHome]; cause != "" {
		add("It cannot run in another cluster: %s", cause)
		return reasons
	}
	add("%s", strategyReason(f, where, placement))
	if class := placement.ClassOf(f.pod); class != nil {
		add("It belongs to the class %s", class.Name)
	}
	if prefer := f.pod.Annotations[v1alpha1.AnnotationPrefer]; prefer != "" {
		add("Its annotation prefers %s", prefer)
	}
	if decided := placement.Decided(f.pod); decided.Strict {
		add("Placement is strict: only %s", orElse(strings.Join(decided.Only, ", "), "a cluster that fits, and none does"))
	}
	return reasons
}

// strategyReason says how the strategy and the place of the pod go together.
func strategyReason(f podFacts, where podPlace, placement offload.Placement) string {
	switch strategy := placement.Strategy(); {
	case strategy == v1alpha1.StrategyLocal && where.Kind == placeVirtual:
		return fmt.Sprintf("Strategy Local keeps new pods at home; this one was placed before that, and onChange is %s", f.onChange())
	case strategy == v1alpha1.StrategyLocal:
		return "Strategy Local keeps pods at home"
	case strategy == v1alpha1.StrategyRemote && where.Kind == placeHome:
		return fmt.Sprintf("Strategy Remote sends new pods away; this one was placed before that, or chose its node itself, and onChange is %s", f.onChange())
	case strategy == v1alpha1.StrategyRemote:
		return "Strategy Remote sends pods to virtual nodes alone"
	case !placement.PrefersHome(f.pod):
		return "Virtual nodes come by their weights, and are not behind the nodes of home"
	case where.Kind == placeVirtual:
		return "Home comes first: it had no room for the pod when it was placed, or the pod itself chooses its nodes"
	default:
		return "Home comes first, then virtual nodes"
	}
}

func (f podFacts) onChange() v1alpha1.ChangeMode {
	if f.offloading.Spec.OnChange == "" {
		return v1alpha1.ChangeKeep
	}
	return f.offloading.Spec.OnChange
}

// candidates are all virtual nodes, with what was decided about them.
func (f podFacts) candidates(placement offload.Placement) []podCandidate {
	prices := map[string]string{} // Peer → what it asks for one core with 1Gi and an hour
	for _, row := range f.table().Rows {
		prices[row.Peer] = viewRow(&row).UsualCost.String()
	}
	var found []podCandidate
	for i := range f.nodes.Items {
		node := &f.nodes.Items[i]
		found = append(found, podCandidate{
			Node: node.Name, Price: prices[node.Labels[v1alpha1.LabelPeer]],
			Weight: placement.Weight(f.pod, node), Excluded: placement.Excludes(f.pod, node),
		})
	}
	return found
}

func stateOfPod(pod *corev1.Pod) podState {
	state := podState{Phase: pod.Status.Phase, Ready: isPodReady(pod), Reason: pod.Status.Reason, Message: pod.Status.Message}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		state.Restarts += c.RestartCount
		one := containerState{Name: c.Name, Restarts: c.RestartCount}
		switch {
		case c.State.Running != nil:
			one.State = "running"
		case c.State.Terminated != nil:
			one.State, one.Reason = "terminated", c.State.Terminated.Reason
		case c.State.Waiting != nil:
			one.State, one.Reason = "waiting", c.State.Waiting.Reason
		default:
			one.State = "waiting"
		}
		state.Containers = append(state.Containers, one)
	}
	return state
}
