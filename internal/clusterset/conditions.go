// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// An Outcome is what became of a ServiceExport.
type Outcome struct {
	// Invalid and Message say why its Service cannot be exported; nothing, if it can.
	Invalid mcsv1beta1.ServiceExportConditionReason
	Message string
	// System is whether the namespace is none of a user's.
	System bool
	// Taken is whether there is a ServiceImport of the name, or a Service of the name that it needs, that Hanse has not made.
	Taken string
	// TooMany is whether a peer is not told of all endpoints, because they are too many.
	TooMany bool
	// Peers are those that share the namespace: name → how the export stands there.
	Peers map[string]Standing
	// Conflicts are those of all exports of the name.
	Conflicts []Conflict
}

// A Standing is how an export stands at a peer.
type Standing struct {
	Told    bool
	Refused string // why, if it is
}

// Conditions returns those of the ServiceExport.
func (o *Outcome) Conditions() []metav1.Condition {
	return []metav1.Condition{o.valid(), o.ready(), o.conflict()}
}

func (o *Outcome) valid() metav1.Condition {
	if o.Invalid != "" {
		return condition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, o.Invalid, o.Message)
	}
	return condition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid, "The Service can be exported")
}

func (o *Outcome) conflict() metav1.Condition {
	if len(o.Conflicts) == 0 {
		return condition(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts,
			"All clusters that export the Service say the same of it")
	}
	var reasons, messages []string
	for _, c := range o.Conflicts {
		reasons, messages = append(reasons, string(c.Reason)), append(messages, c.Message)
	}
	return condition(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue,
		mcsv1beta1.ServiceExportConditionReason(strings.Join(reasons, ",")), "Between clusters "+strings.Join(messages, "; "))
}

func (o *Outcome) ready() metav1.Condition {
	is := func(status metav1.ConditionStatus, reason mcsv1beta1.ServiceExportConditionReason, format string, args ...any) metav1.Condition {
		return condition(mcsv1beta1.ServiceExportConditionReady, status, reason, fmt.Sprintf(format, args...))
	}
	refused, waiting, told := o.standings()
	switch {
	case o.System:
		return is(metav1.ConditionFalse, v1alpha1.ReasonNotInClusterSet, "Services of namespaces of the system, and of peers, are not exported")
	case o.Invalid != "":
		return is(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonFailed, "See condition Valid")
	case o.Taken != "":
		return is(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonFailed,
			"There is a %s that Hanse has not made, and that is left alone: remove it", o.Taken)
	case len(o.Peers) == 0:
		return is(metav1.ConditionFalse, v1alpha1.ReasonNotInClusterSet, "No Peer shares the namespace, so this cluster alone has the "+
			"ServiceImport: an administrator can add the namespace to spec.clusterSet.namespaces of Peers, here and there")
	case len(refused) > 0:
		return is(metav1.ConditionFalse, v1alpha1.ReasonExportRefused, "Not imported by %s", strings.Join(refused, "; by "))
	case len(waiting) > 0:
		return is(metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonPending, "To be told to %s, when there is a connection, and room: a peer is told by at most %d objects, "+
			"the oldest exports first", strings.Join(waiting, ", "), v1alpha1.MaxExportedServices)
	case o.TooMany:
		return is(metav1.ConditionFalse, v1alpha1.ReasonTooManyEndpoints, "Exported to %s, without some endpoints: a peer is told of at most %d, fewer "+
			"where they are in many EndpointSlices: split the Service", strings.Join(told, ", "), maxParts*v1alpha1.MaxExportedEndpoints)
	default:
		return is(metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported, "Exported to %s", strings.Join(told, ", "))
	}
}

func (o *Outcome) standings() (refused, waiting, told []string) {
	for name, s := range o.Peers {
		switch {
		case s.Refused != "":
			refused = append(refused, fmt.Sprintf("%s: %s", name, s.Refused))
		case !s.Told:
			waiting = append(waiting, name)
		default:
			told = append(told, name)
		}
	}
	slices.Sort(refused)
	slices.Sort(waiting)
	slices.Sort(told)
	return refused, waiting, told
}

func condition(
	kind mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus, reason mcsv1beta1.ServiceExportConditionReason, message string,
) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), Message: message}
}
