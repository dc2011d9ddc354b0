// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Ledger knows what the pods of a cluster hold on its nodes, and keeps the sums while pods and nodes come, change and
// go, so that one changed pod among thousands costs one addition. It depends only on the newest state of each object,
// not on the order or number of the calls that brought it. It is not safe for concurrent use.
type Ledger struct {
	nodes map[string]*corev1.Node
	pods  map[string]map[string]holding // namespace → pod → what it holds
	held  map[string]map[string]amounts // node → peer, or nobody "" → what its pods hold there
	rooms map[string]amounts            // schedulable node → what is free there
	shares
}

// holding is what one pod holds.
type holding struct {
	node, peer string
	requests   amounts
}

func (h holding) equal(other holding) bool {
	return h.node == other.node && h.peer == other.peer && maps.Equal(h.requests, other.requests)
}

// NewLedger returns a ledger of a cluster without nodes and pods.
func NewLedger() *Ledger {
	return &Ledger{
		nodes:  map[string]*corev1.Node{},
		pods:   map[string]map[string]holding{},
		held:   map[string]map[string]amounts{},
		rooms:  map[string]amounts{},
		shares: newShares(),
	}
}

// SetNode enters a node or its newest state. The ledger keeps the pointer and does not change the node.
func (l *Ledger) SetNode(node *corev1.Node) {
	l.nodes[node.Name] = node
	l.measure(node.Name)
}

// RemoveNode takes out a node.
func (l *Ledger) RemoveNode(name string) {
	delete(l.nodes, name)
	l.measure(name)
}

// measure sums up anew what is free on the node.
func (l *Ledger) measure(name string) {
	l.free.book(l.rooms[name], -1)
	delete(l.rooms, name)
	if node := l.nodes[name]; node != nil && schedulable(node) {
		l.rooms[name] = l.room(node)
		l.free.book(l.rooms[name], 1)
	}
}

// SetPod enters a pod of the peer, or of nobody "", or its newest state, and says whether that changed what is held. Pods
// that hold nothing (not bound, or ended) may be entered too. Whose a pod is, its own labels do not tell: anybody who may
// make pods could set them.
func (l *Ledger) SetPod(pod *corev1.Pod, peer string) bool {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if !holds(pod) {
		return l.RemovePod(key)
	}
	h := holding{node: pod.Spec.NodeName, peer: peer, requests: amountsOf(Count(pod))}
	if known, found := l.pods[key.Namespace][key.Name]; found && known.equal(h) {
		return false
	}
	l.RemovePod(key)
	if l.pods[key.Namespace] == nil {
		l.pods[key.Namespace] = map[string]holding{}
	}
	l.pods[key.Namespace][key.Name] = h
	l.book(h, 1)
	return true
}

// RemovePod takes out a pod, and says whether it held anything.
func (l *Ledger) RemovePod(key types.NamespacedName) bool {
	h, found := l.pods[key.Namespace][key.Name]
	if !found {
		return false
	}
	delete(l.pods[key.Namespace], key.Name)
	if len(l.pods[key.Namespace]) == 0 {
		delete(l.pods, key.Namespace)
	}
	l.book(h, -1)
	return true
}

// SetOwner makes all pods of the namespace those of the peer, or of nobody "", and says whether that changed what is held.
func (l *Ledger) SetOwner(namespace, peer string) bool {
	changed := false
	for name, h := range l.pods[namespace] {
		if h.peer == peer {
			continue
		}
		l.book(h, -1)
		h.peer, changed = peer, true
		l.book(h, 1)
		l.pods[namespace][name] = h
	}
	return changed
}

func (l *Ledger) book(h holding, sign int64) {
	byPeer := l.held[h.node]
	if byPeer == nil {
		byPeer = map[string]amounts{}
		l.held[h.node] = byPeer
	}
	if byPeer[h.peer] == nil {
		byPeer[h.peer] = amounts{}
	}
	byPeer[h.peer].book(h.requests, sign)
	if byPeer[h.peer][corev1.ResourcePods] == 0 {
		delete(byPeer, h.peer)
	}
	if len(byPeer) == 0 {
		delete(l.held, h.node)
	}
	l.measure(h.node)
	if h.peer != "" {
		l.change(h.peer, func(s *share) { s.held.book(h.requests, sign) })
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
	return physical(node) && !node.Spec.Unschedulable && IsReady(node) && !slices.ContainsFunc(node.Spec.Taints, keepsOff)
}

// IsReady says whether the node is Ready.
func IsReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func keepsOff(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
}

// Load returns what the schedulable physical nodes have, and what of it is free: see Capacity.
func (l *Ledger) Load() (allocatable, free corev1.ResourceList) {
	all, rest := amounts{}, amounts{}
	for name, room := range l.rooms {
		all.add(usable(l.nodes[name]))
		rest.add(room)
	}
	return all.list(), rest.list()
}

// TrimPod is a transform of a cache of pods: it keeps the metadata and what decides how much a pod holds where. A remote
// pod (one that a ShadowPod owns) is kept whole but for its managed fields, since its status goes home.
// Whoever needs the rest of any other pod reads it from the API server. What is no pod is returned as it is.
func TrimPod(object any) (any, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	trimMetadata(&pod.ObjectMeta)
	if v1alpha1.OwnerShadowPod(pod) != nil {
		return pod, nil
	}
	pod.Spec = corev1.PodSpec{
		NodeName:       pod.Spec.NodeName,
		Containers:     trim(pod.Spec.Containers, keptOfContainer),
		InitContainers: trim(pod.Spec.InitContainers, keptOfContainer),
		Resources:      pod.Spec.Resources,
		Overhead:       pod.Spec.Overhead,
		// Whose gate is to be lifted is seen here.
		SchedulingGates: pod.Spec.SchedulingGates,
	}
	pod.Status = corev1.PodStatus{
		Phase:                 pod.Status.Phase,
		StartTime:             pod.Status.StartTime, // since when what it holds is counted, see Meter
		Conditions:            slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type != corev1.PodResizePending }),
		ContainerStatuses:     trim(pod.Status.ContainerStatuses, keptOfStatus),
		InitContainerStatuses: trim(pod.Status.InitContainerStatuses, keptOfStatus),
		Resources:             pod.Status.Resources,
		AllocatedResources:    pod.Status.AllocatedResources,
	}
	return pod, nil
}

// TrimNode is a transform of a cache of nodes: it keeps the metadata and what an offer is computed from, and the
// addresses. What is no node is returned as it is.
func TrimNode(object any) (any, error) {
	node, isNode := object.(*corev1.Node)
	if !isNode {
		return object, nil
	}
	trimMetadata(&node.ObjectMeta)
	node.Spec = corev1.NodeSpec{
		PodCIDR:       node.Spec.PodCIDR,
		PodCIDRs:      node.Spec.PodCIDRs,
		Unschedulable: node.Spec.Unschedulable,
		Taints:        node.Spec.Taints,
	}
	node.Status = corev1.NodeStatus{
		Allocatable: node.Status.Allocatable,
		Conditions: trim(slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type != corev1.NodeReady
		}), keptOfCondition),
		Addresses: node.Status.Addresses,
		Images:    node.Status.Images,
		NodeInfo:  node.Status.NodeInfo,
	}
	return node, nil
}

func trimMetadata(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	delete(meta.Annotations, corev1.LastAppliedConfigAnnotation)
}

// trim has each element keep what it is to keep. It is called for objects that nobody has seen yet, so it changes them.
func trim[T any](all []T, kept func(T) T) []T {
	for i := range all {
		all[i] = kept(all[i])
	}
	return all
}

func keptOfContainer(c corev1.Container) corev1.Container {
	return corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
}

// keptOfStatus keeps when the container has ended, if so: until then it is counted, see EndedAt.
func keptOfStatus(s corev1.ContainerStatus) corev1.ContainerStatus {
	kept := corev1.ContainerStatus{Name: s.Name, Resources: s.Resources, AllocatedResources: s.AllocatedResources}
	if ended := s.State.Terminated; ended != nil {
		kept.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ended.FinishedAt}
	}
	return kept
}

// keptOfCondition drops the times, which change with every heartbeat.
func keptOfCondition(c corev1.NodeCondition) corev1.NodeCondition {
	return corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason}
}
