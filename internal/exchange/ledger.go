package exchange

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Ledger knows what the pods of a cluster hold on its nodes, and keeps the sums while pods and nodes come, change and
// go, so that one changed pod among thousands costs one addition. It depends only on the newest state of each object,
// not on the order or number of the calls that brought it. It is not safe for concurrent use.
type Ledger struct {
	nodes map[string]*corev1.Node
	pods  map[types.NamespacedName]holding
	held  map[string]map[string]account // node → peer, or nobody "" → what its pods hold there
}

// holding is what one pod holds.
type holding struct {
	node, peer string
	requests   amounts
}

func (h holding) equal(other holding) bool {
	return h.node == other.node && h.peer == other.peer && maps.Equal(h.requests, other.requests)
}

// account is what the pods of one peer hold on one node.
type account struct {
	pods int
	sum  amounts
}

// NewLedger returns a ledger of a cluster without nodes and pods.
func NewLedger() *Ledger {
	return &Ledger{
		nodes: map[string]*corev1.Node{},
		pods:  map[types.NamespacedName]holding{},
		held:  map[string]map[string]account{},
	}
}

// SetNode enters a node or its newest state. The ledger keeps the pointer and does not change the node.
func (l *Ledger) SetNode(node *corev1.Node) { l.nodes[node.Name] = node }

// RemoveNode takes out a node.
func (l *Ledger) RemoveNode(name string) { delete(l.nodes, name) }

// SetPod enters a pod or its newest state, and says whether that changed what is held. Pods that hold nothing (not bound,
// or ended) may be entered too.
func (l *Ledger) SetPod(pod *corev1.Pod) bool {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if !holds(pod) {
		return l.RemovePod(key)
	}
	h := holding{node: pod.Spec.NodeName, peer: pod.Labels[v1alpha1.LabelPeer], requests: requestsOf(pod)}
	if known, found := l.pods[key]; found && known.equal(h) {
		return false
	}
	l.RemovePod(key)
	l.pods[key] = h
	l.book(h, 1)
	return true
}

// RemovePod takes out a pod, and says whether it held anything.
func (l *Ledger) RemovePod(key types.NamespacedName) bool {
	h, found := l.pods[key]
	if !found {
		return false
	}
	delete(l.pods, key)
	l.book(h, -1)
	return true
}

func (l *Ledger) book(h holding, sign int) {
	if l.held[h.node] == nil {
		l.held[h.node] = map[string]account{}
	}
	a := l.held[h.node][h.peer]
	if a.sum == nil {
		a.sum = amounts{}
	}
	a.pods += sign
	for name, amount := range h.requests {
		a.sum[name] += int64(sign) * amount
	}
	l.held[h.node][h.peer] = a
	if a.pods > 0 {
		return
	}
	delete(l.held[h.node], h.peer)
	if len(l.held[h.node]) == 0 {
		delete(l.held, h.node)
	}
}

// holds reports whether the pod takes room on a node. One that is being deleted still does.
func holds(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return pod.Spec.NodeName != "" && !ended
}

// physical reports whether the node is one of the cluster's own, and not the image of another cluster.
func physical(node *corev1.Node) bool {
	return node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode
}

// schedulable reports whether a peer's pod could be placed on the node. Peers' pods tolerate no taint.
func schedulable(node *corev1.Node) bool {
	return physical(node) && !node.Spec.Unschedulable && ready(node) && !slices.ContainsFunc(node.Spec.Taints, keepsOff)
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func keepsOff(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
}
