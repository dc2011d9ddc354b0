// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A question is about the pods of one namespace, or of one class of them.
type question struct {
	offloading *v1alpha1.NamespaceOffloading
	placement  offload.Placement
	class      *v1alpha1.PlacementClass // nil for the namespace itself
	said       *v1alpha1.Placement      // what the user asks for; nil is nothing
	rows       []exchange.Row           // of providers that the cluster selector matches
	refusing   map[string]string        // peer that gives the namespace no twin → why
}

// A decision is what was decided about a question.
type decision struct {
	v1alpha1.PlacementClassStatus

	condition *metav1.Condition
}

// An outcome is what the status says about where new pods go. Without a condition it says nothing.
type outcome struct {
	placement *v1alpha1.NamespacePlacementStatus
	condition *metav1.Condition
}

// newQuestions returns the question about the namespace, and then one for each class.
func newQuestions(m *market, placement offload.Placement, offloading *v1alpha1.NamespaceOffloading) []question {
	about := question{offloading: offloading, placement: placement, rows: m.selected(placement)}
	said := offloading.Spec.Placement
	if said == nil {
		return []question{about}
	}
	about.said = &said.Placement
	questions := []question{about}
	for i := range said.Classes {
		inherited := offload.Inherit(said.Classes[i].Placement, said.Placement)
		about.class, about.said = &said.Classes[i], &inherited
		questions = append(questions, about)
	}
	return questions
}

// refusing says of the clusters that give the namespace no twin why: peer → reason.
func refusing(clusters []v1alpha1.ClusterOffloading) map[string]string {
	why := map[string]string{}
	for _, cluster := range clusters {
		if cluster.State == stateRefused {
			why[cluster.Peer] = "It refuses the namespace: " + cluster.Message
		}
	}
	return why
}

// name is that of the class, and empty for the namespace itself.
func (q question) name() string {
	if q.class == nil {
		return ""
	}
	return q.class.Name
}

// selected are the rows of providers that the user lets pods use. Namespaces that say the same share them.
func (m *market) selected(placement offload.Placement) []exchange.Row {
	key := placement.Selector()
	rows, known := m.bySelector[key]
	if !known {
		rows = slices.DeleteFunc(slices.Clone(m.rows), func(row exchange.Row) bool {
			// While there is no node its labels are not known. What is decided about it holds for pods that meet it later.
			node := m.nodes[row.Peer]
			return node != nil && !placement.Selects(node)
		})
		m.bySelector[key] = rows
	}
	return rows
}

// asked is what the user asks for, with what they have left out.
func (q question) asked() v1alpha1.Placement {
	asked := ptr.Deref(q.said, v1alpha1.Placement{})
	if len(asked.Request) == 0 {
		asked.Request = exchange.DefaultRequest()
	}
	return asked
}

// facts are what the policies are asked with.
func (q question) facts(m *market, namespace *corev1.Namespace, now time.Time) policy.Facts {
	return policy.Facts{
		Time: now, Table: m.table, Namespace: namespace, Class: q.name(), Wish: q.said, Request: q.asked().Request,
	}
}

// decide combines what the policies say with what the user wants.
func (q question) decide(said policy.Decision) decision {
	if said.Outcome != policy.Allow {
		return q.refused(said.Reason)
	}
	placing := exchange.Placing{Rows: q.rows, Asked: q.asked()}
	if ranking := said.Ranking; ranking != nil {
		placing.Exclude, placing.Scores, placing.Strict = ranking.Exclude, ranking.Scores, ranking.Strict
	}
	// A pod would wait there for ever.
	exclude := map[string]string{}
	maps.Copy(exclude, q.refusing)
	maps.Copy(exclude, placing.Exclude)
	placing.Exclude = exclude
	placement := exchange.Place(placing)
	return q.decided(placement, q.conditionOf(placement))
}

// decided is a decision with what it means for admission.
func (q question) decided(placement v1alpha1.PlacementStatus, condition *metav1.Condition) decision {
	placement.Admission = q.placement.Admission(q.class, placement)
	return decision{v1alpha1.PlacementClassStatus{Name: q.name(), PlacementStatus: placement}, condition}
}

// combine makes one outcome of the decisions about the namespace and its classes, in this order. The condition is that of
// the first that has no cluster.
func combine(offloading *v1alpha1.NamespaceOffloading, decisions []decision) outcome {
	all := outcome{condition: decisions[0].condition, placement: &v1alpha1.NamespacePlacementStatus{
		PlacementStatus: decisions[0].PlacementStatus,
	}}
	for _, one := range decisions[1:] {
		all.placement.Classes = append(all.placement.Classes, one.PlacementClassStatus)
		if all.condition.Status == metav1.ConditionTrue && one.condition.Status != metav1.ConditionTrue {
			all.condition = one.condition
		}
	}
	all.condition.ObservedGeneration = offloading.Generation
	return all
}

// unanswered is the outcome when the policies could not be asked: what was decided last stays, and before there was anything
// the user's own words alone count. The error itself is in the log, since it need not be the same the next time.
func unanswered(offloading *v1alpha1.NamespaceOffloading, questions []question, late bool) outcome {
	message := "The policy about placement gave no answer that makes sense"
	if late {
		message = "The policy about placement was too slow"
	}
	message += ": see `kubectl hanse policy show placement` and the log of the manager. New pods go where they went before"
	failed := condition(v1alpha1.ConditionPlaced, v1alpha1.ReasonPolicyFailed, message)
	decisions := make([]decision, len(questions))
	for i, q := range questions {
		decisions[i] = q.decided(q.last(), failed)
	}
	return combine(offloading, decisions)
}

// last is what was decided about the question before.
func (q question) last() v1alpha1.PlacementStatus {
	before := q.offloading.Status.Placement
	if before == nil {
		return v1alpha1.PlacementStatus{}
	}
	for _, class := range before.Classes {
		if class.Name == q.name() {
			return class.PlacementStatus
		}
	}
	return before.PlacementStatus
}

// gather returns what the policies would be asked with now about the pods of the namespace of that name, or, if the name is
// that of a namespace and of a class with a slash between them, about those of the class. It is an error if they would not
// be asked. It may be called while the controller works.
func (c *offloadings) gather(ctx context.Context, name, class string) (policy.Facts, error) {
	namespace, err := local.Find(ctx, c.Client, client.ObjectKey{Name: name}, &corev1.Namespace{})
	offloading, offloadingErr := local.Find(ctx, c.Client, offloadingIn(name).NamespacedName, &v1alpha1.NamespaceOffloading{})
	switch {
	case err != nil || offloadingErr != nil:
		return policy.Facts{}, errors.Join(err, offloadingErr)
	case namespace == nil:
		return policy.Facts{}, fmt.Errorf("there is no namespace %s", name)
	case offloading == nil:
		return policy.Facts{}, fmt.Errorf("namespace %s is not offloaded", name)
	case offloading.Spec.Strategy == v1alpha1.StrategyLocal, !offloading.DeletionTimestamp.IsZero():
		return policy.Facts{}, fmt.Errorf("policies are not asked about namespace %s: its new pods stay in this cluster", name)
	}
	placement, err := offload.NewPlacement(offloading)
	if err != nil {
		return policy.Facts{}, err
	}
	now, err := c.readMarket(ctx) // the one that is kept is the worker's own
	if err != nil {
		return policy.Facts{}, err
	}
	asked := newQuestions(now, placement, offloading)
	which := slices.IndexFunc(asked, func(q question) bool { return q.name() == class })
	if which < 0 {
		return policy.Facts{}, fmt.Errorf("namespace %s has no class %q in spec.placement", name, class)
	}
	return asked[which].facts(now, namespace, c.Clock.Now()), nil
}
