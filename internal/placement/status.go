package placement

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

const maxMessage = 1024

// conditionOf says whether there is a cluster for new pods, and what to do if not.
func (q question) conditionOf(placement v1alpha1.PlacementStatus) *metav1.Condition {
	switch {
	case len(q.rows) == 0:
		return q.noneFits("No provider that the cluster selector matches has an accepted offer: see `kubectl hanse table`")
	case q.allExcluded(placement):
		return q.noneFits("Every cluster is excluded: status.placement.nodes says why. Relax maxPrice, maxLatency or exclude in " +
			"spec.placement, or ask the administrator about the policy")
	case placement.Strict && len(placement.Only) == 0:
		return q.noneFits("No cluster has room for a pod of the size that request in spec.placement names (by default one core and " +
			"1Gi): name a smaller one, exclude less, or take strict off. `kubectl hanse table` shows what there is")
	case placement.Strict:
		return q.placed("New pods run on " + strings.Join(placement.Only, ", ") + q.orHere())
	case placement.PrefersRemote:
		return q.placed("New pods go by the weights in status.placement" + q.orHere())
	case q.mayStay():
		return q.placed("New pods run in this cluster while it has room, and then by the weights in status.placement")
	default:
		return q.placed("New pods go by the weights in status.placement")
	}
}

func (q question) allExcluded(placement v1alpha1.PlacementStatus) bool {
	excluded := map[string]bool{}
	for _, node := range placement.Nodes {
		excluded[node.Name] = node.Excluded != ""
	}
	return !slices.ContainsFunc(q.rows, func(row exchange.Row) bool { return !excluded[v1alpha1.VirtualNodeName(row.Peer)] })
}

// refused is the answer when a policy keeps the pods out of all clusters.
func (q question) refused(reason string) answer {
	condition := q.without(v1alpha1.ReasonRefusedByPolicy, "The policy keeps the pods of this namespace out of other clusters"+
		because(reason)+". Ask the administrator")
	return answer{class: q.class, placement: v1alpha1.PlacementStatus{Strict: true}, condition: condition}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + strings.TrimRight(reason, ".")
}

func (q question) noneFits(message string) *metav1.Condition {
	return q.without(v1alpha1.ReasonNoClusterFits, message)
}

// without is the condition while there is no cluster for new pods. Where a pod may run is settled when it is made.
func (q question) without(reason, message string) *metav1.Condition {
	meanwhile := ". New pods stay Pending, also later: once a cluster fits, have them made anew, as by `kubectl rollout restart`"
	if q.mayStay() {
		meanwhile = ". New pods stay in this cluster"
	}
	if q.class != "" {
		message = fmt.Sprintf("Class %q: %s", q.class, message)
	}
	return condition(q.offloading, metav1.ConditionFalse, reason, bounded(message, maxMessage-len(meanwhile))+meanwhile)
}

func (q question) placed(message string) *metav1.Condition {
	return condition(q.offloading, metav1.ConditionTrue, v1alpha1.ReasonReady, message)
}

func (q question) orHere() string {
	if q.mayStay() {
		return ", or in this cluster"
	}
	return ""
}

func (q question) mayStay() bool { return q.offloading.Spec.Strategy != v1alpha1.StrategyRemote }

// unanswered is the outcome when the policies could not be asked: what was decided last stays. The error itself is in
// the log, since it need not be the same the next time.
func unanswered(offloading *v1alpha1.NamespaceOffloading, late bool) outcome {
	message := "The policy about placement gave no answer that makes sense"
	if late {
		message = "The policy about placement was too slow"
	}
	message += ": see `kubectl hanse policy show placement` and the log of the manager. New pods go where they went before"
	return outcome{
		placement: offloading.Status.Placement,
		condition: condition(offloading, metav1.ConditionFalse, v1alpha1.ReasonPolicyFailed, message),
		failed:    true,
	}
}

// misread is the outcome when the cluster selector makes no sense, which the API server lets nobody write.
func misread(offloading *v1alpha1.NamespaceOffloading, err error) outcome {
	return outcome{
		placement: offloading.Status.Placement,
		condition: condition(offloading, metav1.ConditionFalse, v1alpha1.ReasonInvalidField, bounded(err.Error(), maxMessage)),
	}
}

func condition(
	offloading *v1alpha1.NamespaceOffloading, status metav1.ConditionStatus, reason, message string,
) *metav1.Condition {
	return &metav1.Condition{
		Type: v1alpha1.ConditionPlaced, Status: status, Reason: reason, Message: message,
		ObservedGeneration: offloading.Generation,
	}
}

// bounded cuts a text to so many bytes, between characters.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// ownPart is the part of the status that is ours.
func ownPart(offloading *v1alpha1.NamespaceOffloading) v1alpha1.NamespaceOffloadingStatus {
	own := v1alpha1.NamespaceOffloadingStatus{Placement: offloading.Status.Placement}
	if said := meta.FindStatusCondition(offloading.Status.Conditions, v1alpha1.ConditionPlaced); said != nil {
		own.Conditions = []metav1.Condition{*said}
	}
	return own
}
