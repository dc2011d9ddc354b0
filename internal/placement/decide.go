package placement

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A question is about the pods of one namespace, or of one class of them.
type question struct {
	offloading *v1alpha1.NamespaceOffloading
	class      string              // its name; empty for the namespace itself
	said       *v1alpha1.Placement // what the user asks for; nil is nothing
	wish       v1alpha1.Placement  // with what the user has left out
	rows       []exchange.Row      // of providers that the cluster selector matches
}

// An answer is what was decided about a question.
type answer struct {
	class     string
	placement v1alpha1.PlacementStatus
	condition *metav1.Condition
}

// An outcome is what to write about a namespace. Without a condition nothing is to be there.
type outcome struct {
	placement *v1alpha1.NamespacePlacementStatus
	condition *metav1.Condition
	failed    bool // the policies gave no answer: they are to be asked again
}

// newQuestions returns the question about the namespace, and then one for each class.
func newQuestions(m *market, offloading *v1alpha1.NamespaceOffloading) ([]question, error) {
	rows, err := selected(m, offloading.Spec.ClusterSelector)
	if err != nil {
		return nil, err
	}
	said := offloading.Spec.Placement
	if said == nil {
		return []question{{offloading: offloading, rows: rows, wish: complete(v1alpha1.Placement{})}}, nil
	}
	questions := []question{{offloading: offloading, rows: rows, said: &said.Placement, wish: complete(said.Placement)}}
	for i := range said.Classes {
		class := &said.Classes[i]
		wish := inherit(class.Placement, said.Placement)
		questions = append(questions, question{
			offloading: offloading, rows: rows, class: class.Name, said: &wish, wish: complete(wish),
		})
	}
	return questions, nil
}

// selected are the rows of providers that the selector matches.
func selected(m *market, by *v1alpha1.ClusterSelector) ([]exchange.Row, error) {
	selector, err := by.Selector()
	if err != nil {
		return nil, err
	}
	var rows []exchange.Row
	for _, row := range m.rows {
		// While there is no node its labels are not known. What is decided about it holds for pods that meet it later.
		if shown, known := m.labels[row.Peer]; !known || selector.Matches(labels.Set(shown)) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// inherit is the wish for a class in a namespace with a wish of its own. What the class says counts instead of what the
// namespace says; but what either excludes is excluded, and both are strict if one is.
func inherit(class, namespace v1alpha1.Placement) v1alpha1.Placement {
	wish := v1alpha1.Placement{
		Prefer:     cmp.Or(class.Prefer, namespace.Prefer),
		Request:    class.Request,
		MaxPrice:   cmp.Or(class.MaxPrice, namespace.MaxPrice),
		MaxLatency: cmp.Or(class.MaxLatency, namespace.MaxLatency),
		Exclude:    slices.Concat(namespace.Exclude, class.Exclude),
		Strict:     class.Strict || namespace.Strict,
	}
	if len(wish.Request) == 0 {
		wish.Request = namespace.Request
	}
	return wish
}

// complete fills in what the user has left out.
func complete(wish v1alpha1.Placement) v1alpha1.Placement {
	if len(wish.Request) == 0 {
		wish.Request = exchange.DefaultRequest()
	}
	return wish
}

// facts are what the policies are asked with.
func (q question) facts(m *market, namespace *corev1.Namespace, now time.Time) policy.Facts {
	return policy.Facts{
		Time: now, Table: m.table, Namespace: namespace, Class: q.class, Wish: q.said, Request: q.wish.Request,
	}
}

// answer combines what the policies say with what the user wants.
func (q question) answer(decision policy.Decision) answer {
	if decision.Outcome != policy.Allow {
		return q.refused(decision.Reason)
	}
	placing := exchange.Placing{Rows: q.rows, Wish: q.wish}
	if ranking := decision.Ranking; ranking != nil {
		placing.Exclude, placing.Scores, placing.Strict = ranking.Exclude, ranking.Scores, ranking.Strict
	}
	placement := exchange.Place(placing)
	return answer{class: q.class, placement: placement, condition: q.conditionOf(placement)}
}

// combine makes one outcome of the answers about the namespace and its classes, in this order. The condition is that of
// the first that has no cluster.
func combine(answers []answer) outcome {
	all := outcome{
		placement: &v1alpha1.NamespacePlacementStatus{PlacementStatus: answers[0].placement}, condition: answers[0].condition,
	}
	for _, one := range answers[1:] {
		all.placement.Classes = append(all.placement.Classes, v1alpha1.PlacementClassStatus{
			Name: one.class, PlacementStatus: one.placement,
		})
		if all.condition.Status == metav1.ConditionTrue && one.condition.Status != metav1.ConditionTrue {
			all.condition = one.condition
		}
	}
	return all
}
