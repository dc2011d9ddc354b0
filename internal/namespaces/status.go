// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// Bounds of the API: what a peer says beyond them is cut, so that it cannot spoil what is told of others.
const (
	maxClusters       = 1000
	maxExcludedBehind = 256
	maxTwin           = 63
	maxMessage        = 1024
)

// States of a ClusterOffloading. But for Ready they are reasons of the condition, too.
const (
	stateReady   = v1alpha1.ClusterReady
	statePending = v1alpha1.ClusterPending
	stateRefused = v1alpha1.ClusterRefused
)

// facts is what a status is made of.
type facts struct {
	offloading *v1alpha1.NamespaceOffloading
	placement  offload.Placement            // where the user's words let pods run
	invalid    error                        // the selector cannot be read
	clusters   []v1alpha1.ClusterOffloading // of the selected peers, in any order
	placed     outcome                      // where new pods go
	// policies are the names of the NetworkPolicies of the namespace, sorted.
	policies []string
}

// statusOf turns facts into the status. Equal facts give an equal status.
func statusOf(seen facts, now time.Time) v1alpha1.NamespaceOffloadingStatus {
	clusters := slices.Clone(seen.clusters)
	slices.SortFunc(clusters, func(a, b v1alpha1.ClusterOffloading) int { return cmp.Compare(a.Peer, b.Peer) })
	return v1alpha1.NamespaceOffloadingStatus{
		Conditions:         conditionsOf(seen, readiness(seen, clusters), now),
		ObservedGeneration: seen.offloading.Generation,
		Clusters:           clusters[:min(len(clusters), maxClusters)],
		Placement:          seen.placed.placement,
	}
}

func conditionsOf(seen facts, ready *metav1.Condition, now time.Time) []metav1.Condition {
	conditions := slices.Clone(seen.offloading.Status.Conditions)
	ready.ObservedGeneration = seen.offloading.Generation
	for _, c := range []struct {
		kind  string
		found *metav1.Condition
	}{
		{v1alpha1.ConditionReady, ready},
		{v1alpha1.ConditionPlaced, seen.placed.condition},
		{v1alpha1.ConditionNetworkPoliciesKept, policiesKept(seen)},
	} {
		if c.found == nil {
			meta.RemoveStatusCondition(&conditions, c.kind)
			continue
		}
		c.found.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&conditions, *c.found)
	}
	return conditions
}

// policiesKept says which NetworkPolicies of the namespace do not hold for its pods at peers, nil if there are none: nothing at the
// gateway enforces them, and those that select other pods by labels do not know pods at peers by these.
func policiesKept(seen facts) *metav1.Condition {
	if len(seen.policies) == 0 || seen.offloading.Spec.Strategy == v1alpha1.StrategyLocal {
		return nil
	}
	kept := condition(v1alpha1.ConditionNetworkPoliciesKept, v1alpha1.ReasonNotEnforced, "No gateway and no peer enforces these NetworkPolicies "+
		"for pods that run at peers: "+someOf(seen.policies)+". Move pods that need them to a namespace that is not offloaded, or see docs/explanation/network.md "+
		"for what pods at peers reach without")
	kept.ObservedGeneration = seen.offloading.Generation
	return kept
}

// someOf names the first of them, and says how many there are besides.
func someOf(all []string) string {
	const shown = 10
	names := strings.Join(all[:min(len(all), shown)], ", ")
	if more := len(all) - shown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}

func placedOf(offloading *v1alpha1.NamespaceOffloading) *metav1.Condition {
	return meta.FindStatusCondition(offloading.DeepCopy().Status.Conditions, v1alpha1.ConditionPlaced)
}

// standing says how the offloading stands to a peer that has this mapping, or none, and should have that twin.
func standing(
	cluster v1alpha1.ClusterOffloading, mapping *v1alpha1.NamespaceMapping, wanted string,
) v1alpha1.ClusterOffloading {
	switch {
	case mapping == nil:
		cluster.Message = "The peer is about to be asked for a namespace"
		return cluster
	case !mapping.DeletionTimestamp.IsZero():
		cluster.Message = "An earlier namespace of the same name is still being deleted there"
		return cluster
	case mapping.Spec.Twin != wanted:
		return waitsForItsName(cluster, mapping.Status.Twin)
	}
	ready := meta.FindStatusCondition(mapping.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		cluster.Message = "The peer has not answered yet"
	case ready.Status == metav1.ConditionTrue && isTwinName(mapping.Status.Twin):
		cluster.State, cluster.Twin = stateReady, mapping.Status.Twin
	case ready.Status == metav1.ConditionTrue:
		cluster.State, cluster.Message = stateRefused, "The peer answered with an impossible namespace name"
	default:
		cluster.State = refusal(ready.Reason)
		cluster.Message = sanitize.Text(ready.Reason+": "+ready.Message, maxMessage)
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
func readiness(seen facts, clusters []v1alpha1.ClusterOffloading) *metav1.Condition {
	is := func(reason, message string) *metav1.Condition {
		return condition(v1alpha1.ConditionReady, reason, message)
	}
	switch {
	case seen.invalid != nil:
		return is(v1alpha1.ReasonInvalidField, seen.invalid.Error())
	case seen.offloading.Spec.Strategy == v1alpha1.StrategyLocal:
		return is(v1alpha1.ReasonReady, "Pods stay in this cluster")
	case len(clusters) == 0:
		return is(v1alpha1.ReasonPending, "No virtual node matches the cluster selector: see `kubectl get nodes -l "+
			v1alpha1.LabelType+"="+v1alpha1.TypeVirtualNode+" --show-labels`")
	}
	names := make([]string, 0, len(clusters))
	for _, cluster := range clusters {
		if cluster.State != stateReady {
			return is(cluster.State, "Peer "+cluster.Peer+": "+cluster.Message)
		}
		names = append(names, cluster.Peer)
	}
	return is(v1alpha1.ReasonReady, "Every selected peer has a namespace for this one: "+someOf(names))
}

// condition is True exactly if its reason is Ready.
func condition(kind, reason, message string) *metav1.Condition {
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonReady {
		status = metav1.ConditionTrue
	}
	return &metav1.Condition{Type: kind, Status: status, Reason: reason, Message: sanitize.Text(message, maxMessage)}
}

// conditionOf says whether there is a cluster for new pods, and what to do if not.
func (q question) conditionOf(placement v1alpha1.PlacementStatus) *metav1.Condition {
	switch {
	case len(q.rows) == 0:
		return q.noneFits("No provider that the cluster selector matches has an accepted offer: see `kubectl hanse table`")
	case q.allExcluded(placement):
		return q.noneFits("Every cluster is excluded: status.placement.nodes says why. Relax maxPrice, maxLatency, minBandwidth or " +
			"exclude in spec.placement, or ask the administrator about the policy")
	case !placement.Strict && !placement.AllowsAny():
		return q.noneFits("Every provider is closed to new pods for now: see `kubectl hanse table`")
	case placement.Strict && len(placement.Only) == 0:
		return q.noneFits("No cluster has room for a pod of the size that request in spec.placement names (by default one core and " +
			"1Gi): name a smaller one, exclude less, or take strict off. `kubectl hanse table` shows what there is")
	}
	message := "New pods go by the weights in status.placement"
	switch {
	case placement.Strict:
		message = "New pods run on " + strings.Join(placement.Only, ", ") + q.orHere()
	case placement.PrefersRemote:
		message += q.orHere()
	case q.mayStay():
		message = "New pods run in this cluster while it has room, and then by the weights in status.placement"
	}
	return condition(v1alpha1.ConditionPlaced, v1alpha1.ReasonReady, message)
}

func (q question) allExcluded(placement v1alpha1.PlacementStatus) bool {
	excluded := map[string]bool{}
	for _, node := range placement.Nodes {
		excluded[node.Name] = node.Excluded != ""
	}
	return !slices.ContainsFunc(q.rows, func(row exchange.Row) bool { return !excluded[v1alpha1.VirtualNodeName(row.Peer)] })
}

// refused is the answer when a policy keeps the pods out of all clusters.
func (q question) refused(reason string) decision {
	if reason != "" {
		reason = ": " + strings.TrimRight(reason, ".")
	}
	condition := q.without(v1alpha1.ReasonRefusedByPolicy,
		"The policy keeps the pods of this namespace out of other clusters"+reason+". Ask the administrator")
	return q.decided(v1alpha1.PlacementStatus{Strict: true}, condition)
}

func (q question) noneFits(message string) *metav1.Condition {
	return q.without(v1alpha1.ReasonNoClusterFits, message)
}

// without is the condition while there is no cluster for new pods.
func (q question) without(reason, message string) *metav1.Condition {
	meanwhile := ". New pods wait, and run as soon as a cluster takes them"
	if q.mayStay() {
		meanwhile = ". New pods stay in this cluster"
	}
	if q.class != nil {
		message = fmt.Sprintf("Class %q: %s", q.name(), message)
	}
	return condition(v1alpha1.ConditionPlaced, reason, sanitize.Text(message, maxMessage-len(meanwhile))+meanwhile)
}

func (q question) orHere() string {
	if q.mayStay() {
		return ", or in this cluster"
	}
	return ""
}

func (q question) mayStay() bool { return q.placement.Strategy() != v1alpha1.StrategyRemote }
