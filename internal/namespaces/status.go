package namespaces

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Bounds of the API: what a peer says beyond them is cut, so that it cannot spoil what is told of others.
const (
	maxClusters = 1000
	maxTwin     = 63
	maxMessage  = 1024
)

// States of a ClusterOffloading.
const (
	stateReady   = "Ready"
	statePending = "Pending"
	stateRefused = "Refused"
)

// facts is what a status is made of.
type facts struct {
	offloading *v1alpha1.NamespaceOffloading
	invalid    error    // the selector cannot be read
	answers    []answer // of the selected peers, in any order
}

// answer is what is known from one selected peer. A mapping that does not exist is nil.
type answer struct {
	peer      string
	connected bool
	mapping   *v1alpha1.NamespaceMapping
	misnamed  bool // the mapping asks for another name than the user wants now
}

// statusOf turns facts into the part of the status that is ours. Equal facts give an equal status.
func statusOf(seen facts, now time.Time) v1alpha1.NamespaceOffloadingStatus {
	clusters := make([]v1alpha1.ClusterOffloading, 0, len(seen.answers))
	for _, a := range seen.answers {
		clusters = append(clusters, standing(a))
	}
	slices.SortFunc(clusters, func(a, b v1alpha1.ClusterOffloading) int { return cmp.Compare(a.Peer, b.Peer) })

	ready := readiness(seen, clusters)
	ready.ObservedGeneration = seen.offloading.Generation
	ready.LastTransitionTime = metav1.NewTime(now)
	conditions := ownPart(seen.offloading.Status).Conditions
	meta.SetStatusCondition(&conditions, ready)

	if len(clusters) == 0 {
		clusters = nil
	}
	return v1alpha1.NamespaceOffloadingStatus{
		Conditions:         conditions,
		ObservedGeneration: seen.offloading.Generation,
		Clusters:           clusters[:min(len(clusters), maxClusters)],
	}
}

// ownPart leaves out what others write: where new pods go.
func ownPart(status v1alpha1.NamespaceOffloadingStatus) v1alpha1.NamespaceOffloadingStatus {
	own := v1alpha1.NamespaceOffloadingStatus{ObservedGeneration: status.ObservedGeneration, Clusters: status.Clusters}
	if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready != nil {
		own.Conditions = []metav1.Condition{*ready}
	}
	return own
}

// standing says how the offloading to one peer stands.
func standing(a answer) v1alpha1.ClusterOffloading {
	cluster := v1alpha1.ClusterOffloading{Peer: a.peer, State: statePending}
	switch {
	case !a.connected:
		cluster.Message = "There is no connection to the peer: see the conditions of its Peer"
		return cluster
	case a.mapping == nil:
		cluster.Message = "The peer is about to be asked for a namespace"
		return cluster
	case !a.mapping.DeletionTimestamp.IsZero():
		cluster.Message = "An earlier namespace of the same name is still being deleted there"
		return cluster
	case a.misnamed:
		return waitsForItsName(cluster, a.mapping.Status.Twin)
	}
	ready := meta.FindStatusCondition(a.mapping.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		cluster.Message = "The peer has not answered yet"
	case ready.Status == metav1.ConditionTrue && isTwinName(a.mapping.Status.Twin):
		cluster.State, cluster.Twin = stateReady, a.mapping.Status.Twin
	case ready.Status == metav1.ConditionTrue:
		cluster.State, cluster.Message = stateRefused, "The peer answered with an impossible namespace name"
	default:
		cluster.State = refusal(ready.Reason)
		cluster.Message = cut(ready.Reason+": "+ready.Message, maxMessage)
	}
	return cluster
}

// waitsForItsName tells of a twin that is to be called differently, which it cannot be while pods run in it.
func waitsForItsName(cluster v1alpha1.ClusterOffloading, twin string) v1alpha1.ClusterOffloading {
	cluster.Message = "The peer is about to be asked for a namespace of another name"
	if isTwinName(twin) {
		cluster.Twin = twin
		cluster.Message = "Pods still use the namespace that there is. The peer is asked for one of the new name when the " +
			"last of them has gone: delete them, or have them moved home with strategy Local and onChange Evict"
	}
	return cluster
}

// isTwinName reports whether a namespace can have the name.
func isTwinName(name string) bool { return name != "" && len(name) <= maxTwin }

// refusal tells what will not change by waiting from what will.
func refusal(reason string) string {
	switch reason {
	case v1alpha1.ReasonNamespaceTaken, v1alpha1.ReasonNamespaceForbidden, v1alpha1.ReasonTwinNameForbidden:
		return stateRefused
	default:
		return statePending
	}
}

// readiness sums up: it names the first peer, by name, that is not ready, so that the message rarely changes.
func readiness(seen facts, clusters []v1alpha1.ClusterOffloading) metav1.Condition {
	switch {
	case seen.invalid != nil:
		return notReady(v1alpha1.ReasonInvalidField, cut(seen.invalid.Error(), maxMessage))
	case seen.offloading.Spec.Strategy == v1alpha1.StrategyLocal:
		return ready("Pods stay in this cluster")
	case len(clusters) == 0:
		return notReady(v1alpha1.ReasonPending,
			"No virtual node matches the cluster selector: see `kubectl get nodes -l "+
				v1alpha1.LabelType+"="+v1alpha1.TypeVirtualNode+" --show-labels`")
	}
	for _, cluster := range clusters {
		if cluster.State != stateReady {
			return notReady(reasonOf(cluster), "Peer "+cluster.Peer+": "+cut(cluster.Message, maxMessage))
		}
	}
	return ready("Every selected peer has a namespace for this one")
}

func reasonOf(cluster v1alpha1.ClusterOffloading) string {
	if cluster.State == stateRefused {
		return reasonRefused
	}
	return v1alpha1.ReasonPending
}

// reasonRefused: a peer will not make a namespace for this one.
const reasonRefused = "Refused"

func ready(message string) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: message,
	}
}

func notReady(reason, message string) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}
}

// cut shortens text to at most limit bytes of valid UTF-8.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
