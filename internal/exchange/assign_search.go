// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
)

// A weight is by what assignments compare, the first number first: the price of an hour, that of the placement, the lack of interest,
// how many pairs that talk are separated, the distance, and how many images are missing.
type weight [6]float64

const (
	hourly = iota
	once
	indifference
	separated
	distance
	missing
)

func (w weight) plus(other weight) weight {
	for i := range w {
		w[i] += other[i]
	}
	return w
}

// A unit is components that run in one cluster.
type unit struct {
	components []int
	total      amounts
	found      map[string][]choice // currency, empty for what is free → the best rows, as many as there are units
	choices    []choice            // those of the currency at hand, the best first
	least      weight              // no choice has less of anything
}

// A choice is a row that a unit fits in while nothing else of the job is there.
type choice struct {
	row    int
	weight weight
}

// A search is one for the best assignment.
type search struct {
	*Job
	parts  []demands
	units  []*unit
	apart  map[int][]int
	talks  map[int][]int
	effort int

	// The assignment so far.
	rows []int // component → row, -1 if none yet
	room map[int]amounts
	best []int
	// weight of the best.
	weight weight
}

func newSearch(job *Job) *search {
	s := &search{Job: job, effort: cmp.Or(job.Effort, DefaultEffort), apart: map[int][]int{}, talks: map[int][]int{}}
	for _, group := range job.Apart {
		for _, i := range group {
			for _, j := range group {
				if i != j {
					s.apart[i] = append(s.apart[i], j)
				}
			}
		}
	}
	for _, pair := range job.Talks {
		s.talks[pair[0]] = append(s.talks[pair[0]], pair[1])
		s.talks[pair[1]] = append(s.talks[pair[1]], pair[0])
	}
	for i := range job.Components {
		c := &job.Components[i]
		s.parts = append(s.parts, demands{demandOf(Query{Request: c.Resources, Images: c.Images}), demandOf(Query{Request: c.total()})})
	}
	s.units = job.unite()
	for j := range s.Rows { // one row at a time for all units: to bring it from memory costs more than to look at it
		for _, u := range s.units {
			s.consider(u, j)
		}
	}
	return s
}

// demands are what one replica of a component asks for, and what all of them do.
type demands struct{ replica, all *demand }

// unite makes units of the components.
func (j *Job) unite() []*unit {
	of := make([]int, len(j.Components)) // component → the first one of its unit
	for i := range of {
		of[i] = i
	}
	for _, group := range j.Together {
		for _, member := range group {
			from, to := of[member], of[group[0]]
			for i := range of {
				if of[i] == from {
					of[i] = to
				}
			}
		}
	}
	byFirst := map[int]*unit{}
	var units []*unit
	for i, first := range of {
		if byFirst[first] == nil {
			byFirst[first] = &unit{total: amounts{}, found: map[string][]choice{}}
			units = append(units, byFirst[first])
		}
		u := byFirst[first]
		u.components = append(u.components, i)
		u.total.add(amountsOf(j.Components[i].total()))
	}
	return units
}

// objections say of each component and row why the one does not fit in the other.
func (s *search) objections() [][]string {
	why := make([][]string, len(s.Components))
	for i := range why {
		why[i] = make([]string, len(s.Rows))
		for j := range s.Rows {
			why[i][j] = s.objection(i, &s.Rows[j])
		}
	}
	return why
}

func (s *search) objection(i int, row *Row) string {
	c, asked := &s.Components[i], s.parts[i]
	if c.Only != nil && *c.Only != row.Peer {
		return "It is not among the weights of the component"
	}
	if s.Allowed != nil {
		if why := s.Allowed(row); why != "" {
			return why
		}
	}
	if why := objection(&c.Bounds, row); why != "" {
		return why
	}
	if why := asked.replica.misfit(row); why != "" {
		return why
	}
	if name := asked.all.scarce(row); name != "" {
		all := asked.all.request[name]
		return fmt.Sprintf("It has less than %s of %s free, which %d replicas ask for", all.String(), name, c.Replicas)
	}
	if c.MaxPrice == nil {
		return ""
	}
	return tooDear(c.MaxPrice, row.PricePerHour(asked.all.request))
}

// scarce returns the first resource that the row has too little of, whatever nodes it is on.
func (d *demand) scarce(r *Row) corev1.ResourceName {
	offered := Offered(&r.Offer)
	for i := range d.needs {
		if n := &d.needs[i]; n.quantity.Cmp(offered[n.name]) > 0 {
			return n.name
		}
	}
	return ""
}

// consider adds the row to the best ones that the unit fits in alone, if it is one of them. What is looked at last is what costs the
// most to look at.
func (s *search) consider(u *unit, j int) {
	currency, weighed := s.weigh(u, j)
	best := u.found[currency]
	at, _ := slices.BinarySearchFunc(best, weighed, func(c choice, w weight) int {
		return cmp.Or(s.compare(c.weight, w), strings.Compare(s.Rows[c.row].ClusterID, s.Rows[j].ClusterID))
	})
	if at == len(s.units) || !s.fitsAlone(u, &s.Rows[j]) {
		return
	}
	best = slices.Insert(best, at, choice{row: j, weight: weighed})
	u.found[currency] = best[:min(len(best), len(s.units))]
}

func (s *search) fitsAlone(u *unit, row *Row) bool {
	if slices.ContainsFunc(u.components, func(i int) bool { return s.objection(i, row) != "" }) {
		return false
	}
	return len(u.components) == 1 || within(u.total, amountsOf(Offered(&row.Offer)))
}

// weigh returns how good the row is for the unit, and in which currency it is paid, which is empty if it is free.
func (s *search) weigh(u *unit, j int) (currency string, sum weight) {
	row := &s.Rows[j]
	for _, i := range u.components {
		c, asked := &s.Components[i], s.parts[i].replica
		charge, replicas := asked.charge(row.Offer.Prices), float64(c.Replicas)
		if !charge.free() {
			currency = charge.currency
		}
		sum = sum.plus(weight{
			hourly: charge.perHour * replicas, once: charge.perPlacement * replicas,
			distance: row.distance() * replicas, missing: float64(len(c.Images) - asked.imagesAt(&row.Offer)),
		})
		if s.Interest != nil {
			sum[indifference] -= float64(s.Interest(i, j))
		}
	}
	return currency, sum
}

// distance is the round-trip time, and far for a peer to which it is not known.
func (r *Row) distance() float64 {
	const far = 3600
	switch {
	case r.Peer == "":
		return 0
	case r.RoundTrip == 0:
		return far
	default:
		return r.RoundTrip.Seconds()
	}
}

// within reports whether one is no more than the other, of all that it names.
func within(asked, free amounts) bool {
	for name, amount := range asked {
		if amount > free[name] {
			return false
		}
	}
	return true
}

// compare puts the better weight first.
func (s *search) compare(a, b weight) int {
	if s.Nearest {
		if order := cmp.Compare(a[distance], b[distance]); order != 0 {
			return order
		}
	}
	return slices.Compare(a[:], b[:])
}

// currencies are those that there are choices in, by code; free is one of them where a unit has no other.
func (s *search) currencies() []string {
	if s.MaxPrice != nil {
		return []string{s.MaxPrice.Currency}
	}
	var found []string
	for _, u := range s.units {
		found = slices.AppendSeq(found, maps.Keys(u.found))
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) > 1 && found[0] == "" {
		return found[1:] // what is free is paid in any
	}
	return found
}

// begin begins a search in which all is paid in the currency.
func (s *search) begin(currency string) {
	s.best, s.room = nil, map[int]amounts{}
	s.rows = slices.Repeat([]int{-1}, len(s.Components))
	for _, u := range s.units {
		u.choices, u.least = slices.Clone(u.found[currency]), weight{}
		if currency != "" {
			u.choices = append(u.choices, u.found[""]...)
		}
		slices.SortFunc(u.choices, func(a, b choice) int { return s.compare(a.weight, b.weight) })
		u.choices = u.choices[:min(len(u.choices), len(s.units))]
		for i := range u.choices {
			for k, n := range u.choices[i].weight {
				if i == 0 || n < u.least[k] {
					u.least[k] = n
				}
			}
		}
	}
	// What has the fewest choices decides first.
	slices.SortStableFunc(s.units, func(a, b *unit) int { return cmp.Compare(len(a.choices), len(b.choices)) })
}

// extend places the unit and those after it, in each way that may still be better than the best.
func (s *search) extend(next int, sum weight) {
	if s.effort == 0 {
		return
	}
	s.effort--
	if next == len(s.units) {
		if s.affordable() && (s.best == nil || s.compare(sum, s.weight) < 0) {
			s.best, s.weight = slices.Clone(s.rows), sum
		}
		return
	}
	u := s.units[next]
	for i := range u.choices {
		c := &u.choices[i]
		reached := sum.plus(c.weight)
		reached[separated] += s.separates(u, c.row)
		if s.best != nil && s.compare(s.atLeast(reached, next+1), s.weight) >= 0 || s.isTaken(u, c.row) || !s.take(u, c.row) {
			continue
		}
		s.extend(next+1, reached)
		s.giveBack(u, c.row)
	}
}

// atLeast is what an assignment weighs at least that begins like this.
func (s *search) atLeast(sum weight, next int) weight {
	for _, u := range s.units[next:] {
		sum = sum.plus(u.least)
	}
	return sum
}

// separates counts the pairs that talk to each other of which one is in another cluster already.
func (s *search) separates(u *unit, row int) float64 {
	count := 0.0
	for _, i := range u.components {
		for _, j := range s.talks[i] {
			if s.rows[j] >= 0 && s.rows[j] != row {
				count++
			}
		}
	}
	return count
}

// isTaken reports whether something is there from which the unit must stay apart.
func (s *search) isTaken(u *unit, row int) bool {
	return slices.ContainsFunc(u.components, func(i int) bool {
		return slices.ContainsFunc(s.apart[i], func(j int) bool { return s.rows[j] == row || slices.Contains(u.components, j) })
	})
}

// take puts the unit there if it fits beside what is there already.
func (s *search) take(u *unit, row int) bool {
	room, known := s.room[row]
	if !known {
		room = amountsOf(Offered(&s.Rows[row].Offer))
		s.room[row] = room
	}
	if !within(u.total, room) {
		return false
	}
	room.book(u.total, -1)
	for _, i := range u.components {
		s.rows[i] = row
	}
	return true
}

func (s *search) giveBack(u *unit, row int) {
	s.room[row].book(u.total, 1)
	for _, i := range u.components {
		s.rows[i] = -1
	}
}

// affordable reports whether all of it costs no more than it may, exactly.
func (s *search) affordable() bool {
	if s.MaxPrice == nil {
		return true
	}
	sum := Cost{Currency: s.MaxPrice.Currency, PerHour: new(inf.Dec)}
	for i, row := range s.rows {
		sum.PerHour.Add(sum.PerHour, s.Rows[row].PricePerHour(s.Components[i].total()).PerHour)
	}
	return tooDear(s.MaxPrice, sum) == ""
}
