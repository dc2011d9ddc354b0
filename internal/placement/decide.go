package placement

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A question is about the pods of one namespace.
type question struct {
	offloading *v1alpha1.NamespaceOffloading
	wish       v1alpha1.Placement // with what the user has left out
	rows       []exchange.Row     // of providers that the cluster selector matches
}

// An outcome is what to write about a namespace. Without a condition nothing is to be there.
type outcome struct {
	placement *v1alpha1.PlacementStatus
	condition *metav1.Condition
	failed    bool // the policies gave no answer: they are to be asked again
}

func newQuestion(m *market, offloading *v1alpha1.NamespaceOffloading) (question, error) {
	q := question{offloading: offloading, wish: wishOf(offloading)}
	selector, err := offloading.Spec.ClusterSelector.Selector()
	if err != nil {
		return question{}, err
	}
	for _, row := range m.rows {
		// While there is no node its labels are not known. What is decided about it holds for pods that meet it later.
		if shown, known := m.labels[row.Peer]; !known || selector.Matches(labels.Set(shown)) {
			q.rows = append(q.rows, row)
		}
	}
	return q, nil
}

// facts are what the policies are asked with.
func (q question) facts(m *market, namespace *corev1.Namespace, now time.Time) policy.Facts {
	return policy.Facts{
		Time: now, Table: m.table, Namespace: namespace, Wish: q.offloading.Spec.Placement, Request: q.wish.Request,
	}
}

func wishOf(offloading *v1alpha1.NamespaceOffloading) v1alpha1.Placement {
	wish := v1alpha1.Placement{}
	if offloading.Spec.Placement != nil {
		wish = *offloading.Spec.Placement
	}
	if len(wish.Request) == 0 {
		wish.Request = exchange.DefaultRequest()
	}
	return wish
}

// answer combines what the policies say with what the user wants.
func (q question) answer(decision policy.Decision) outcome {
	if decision.Outcome != policy.Allow {
		return q.refused(decision.Reason)
	}
	placing := exchange.Placing{Rows: q.rows, Wish: q.wish}
	if ranking := decision.Ranking; ranking != nil {
		placing.Exclude, placing.Scores, placing.Strict = ranking.Exclude, ranking.Scores, ranking.Strict
	}
	placement := exchange.Place(placing)
	return outcome{placement: &placement, condition: q.conditionOf(placement)}
}
