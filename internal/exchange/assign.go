// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// DefaultEffort is how many partial assignments a search looks at before it takes the best that it has found. So many take some
// milliseconds.
const DefaultEffort = 20000

// A Job is what has to be placed as a whole: several components, each of which runs in one cluster.
type Job struct {
	// Rows are those of the table with links, and one for the own cluster, with no Peer. What their offers have is what is free for the
	// job.
	Rows []Row
	// Components are what is to be placed, in the order of their names in Together, Apart and the answer.
	Components []Component
	// Allowed says of a row why none of the job may run there; it is empty if it may.
	Allowed func(*Row) string
	// MaxPrice is the most that all of it may cost for an hour. A row that asks in another currency is left out.
	MaxPrice *v1alpha1.Price
	// Nearest puts what is near before what is cheap.
	Nearest bool
	// Together are components, by index, that must run in one cluster; Apart those of which no two may.
	Together, Apart [][]int
	// Talks are pairs of components, by index, that are better off in one cluster. Of assignments that cost the same the one that
	// separates the fewest is taken.
	Talks [][2]int
	// Interest says how gladly a row takes a component, by their indexes: of assignments that cost the same, the one with the most is
	// taken. It may be nil.
	Interest func(component, row int) int32
	// Effort bounds the search, see DefaultEffort.
	Effort int
}

// A Component is one part of a job.
type Component struct {
	v1alpha1.RequestedComponent

	// Images are those of one replica.
	Images []string
	// Bounds are what the user asks of a cluster for it. MaxPrice there is for one replica.
	Bounds v1alpha1.Placement
	// MaxPrice is the most that all replicas may cost for an hour.
	MaxPrice *v1alpha1.Price
	// Only is the one peer that may run it, "" for the own cluster. If it is nil any may.
	Only *string
}

// An Assignment says where the components of a job run.
type Assignment struct {
	// Rows has for each component the index of its row. It is nil if the job does not fit.
	Rows []int
	// PerHour is what each component costs for an hour, nil if that is nothing.
	PerHour []*v1alpha1.Price
	// Exact says that there is no cheaper assignment, or nearer one if the job asks for that; otherwise the search was cut off.
	Exact bool
	// Why says of each component, if the job does not fit, why it does not fit in each row: "" where it does.
	Why [][]string
}

// Assign finds the best rows for the components of the job: the cheapest, and of those the ones in which there is
// the most interest, that separate the fewest that talk to each other, that are the nearest, and that have the most images already. Prices in different currencies are not compared: all of a
// job is paid in one, the first by its code in which it fits.
//
// It is a branch-and-bound search over the units, which are the components that must stay together. Of the rows that a unit fits in
// alone it looks at as many of the cheapest as there are units, and loses nothing: the other units use fewer rows than that, so one
// of these is free whatever they use, and it is no dearer than any row that was left out.
func Assign(job Job) Assignment {
	s := newSearch(&job)
	var result Assignment
	for _, currency := range s.currencies() {
		s.begin(currency)
		s.extend(0, weight{})
		if s.best != nil {
			break
		}
	}
	result.Exact = s.effort > 0
	if s.best == nil {
		result.Why = s.objections()
		return result
	}
	result.Rows = s.best
	for i := range job.Components {
		c := &job.Components[i]
		result.PerHour = append(result.PerHour, PriceOf(job.Rows[s.best[i]].Offer.Prices, c.total()))
	}
	return result
}

// total is what all replicas ask for.
func (c *Component) total() corev1.ResourceList {
	return DemandOf([]v1alpha1.RequestedComponent{c.RequestedComponent})
}
