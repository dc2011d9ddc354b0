// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"maps"
	"slices"
	"sync"
	"time"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Meter counts what pods of peers, or ours at peers, hold over time, and what is reserved for them. A change of a pod costs one
// addition. Nothing in it is needed after a restart: what was counted is in Accounts, and what came after that is counted again from
// the times that the objects name themselves. It is safe for concurrent use.
type Meter struct {
	mu    sync.Mutex
	pods  map[types.NamespacedName]metered
	books map[string]*meterBook // peer → what is counted for it
}

// metered is what one pod holds.
type metered struct {
	peer, request string
	amounts       amounts
}

// meterBook is of one peer.
type meterBook struct {
	since time.Time             // what is before is counted
	lines map[string]*meterLine // by the name of the Request; "" is of pods that name none
}

type meterLine struct {
	meterState

	changes []meterChange       // after since
	latest  *MeteredReservation // once all changes have come
}

// meterState is what pods of one Request hold, and what is reserved for it.
type meterState struct {
	used        amounts
	reservation *MeteredReservation
}

func (s *meterState) book(held amounts, sign int64) {
	s.used.book(held, sign)
	maps.DeleteFunc(s.used, func(_ corev1.ResourceName, amount int64) bool { return amount == 0 })
}

type meterChange struct {
	at time.Time
	by func(*meterState)
}

// MeteredReservation is what a Request has reserved, and for what.
type MeteredReservation struct {
	Application string
	Reserved    corev1.ResourceList
	Price       *v1alpha1.Price
}

// NewMeter returns a meter that has counted nothing.
func NewMeter() *Meter {
	return &Meter{pods: map[types.NamespacedName]metered{}, books: map[string]*meterBook{}}
}

// Open has the meter count for the peer from then on, if it does not yet. It must come before anything of the peer is metered.
func (m *Meter) Open(peer string, since func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.books[peer] == nil {
		m.books[peer] = &meterBook{since: since(), lines: map[string]*meterLine{}}
	}
}

// Forget ends what is counted for the peer.
func (m *Meter) Forget(peer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.books, peer)
	maps.DeleteFunc(m.pods, func(_ types.NamespacedName, pod metered) bool { return pod.peer == peer })
}

// MeteredPod is a pod that holds something.
type MeteredPod struct {
	types.NamespacedName

	// Peer is whose it is, or where it runs, and Request the name of the Request whose room it uses, if any. Both are those of the first
	// time that it is metered.
	Peer, Request string
	Holds         corev1.ResourceList
	// Started is since when it holds it, if it was not metered before. If it was, a change is of now.
	Started time.Time
}

// Hold meters a pod, and says whether anything changed by that.
func (m *Meter) Hold(pod *MeteredPod, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.pods[pod.NamespacedName]
	next, at := metered{pod.Peer, pod.Request, amountsOf(pod.Holds)}, pod.Started
	if known {
		next.peer, next.request, at = before.peer, before.request, now
	}
	if known && maps.Equal(before.amounts, next.amounts) || m.books[next.peer] == nil {
		return false
	}
	if at.After(now) { // by the clock of a node that is ahead
		at = now
	}
	m.pods[pod.NamespacedName] = next
	m.change(next.peer, next.request, at, func(s *meterState) {
		s.book(before.amounts, -1)
		s.book(next.amounts, 1)
	})
	return true
}

// EndedAt is when the last container of a pod that has ended did so, and now if the pod does not tell. Who hears of it late, after an
// outage, counts no more than who saw it.
func EndedAt(pod *corev1.Pod, now time.Time) time.Time {
	last := time.Time{}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if ended := s.State.Terminated; ended != nil && ended.FinishedAt.After(last) {
			last = ended.FinishedAt.Time
		}
	}
	if last.IsZero() || last.After(now) {
		return now
	}
	return last
}

// Release ends what a pod holds at that time, and returns whose it was, "" if it held nothing.
func (m *Meter) Release(pod types.NamespacedName, at time.Time) (peer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.pods[pod]
	if !known {
		return ""
	}
	delete(m.pods, pod)
	m.change(before.peer, before.request, at, func(s *meterState) { s.book(before.amounts, -1) })
	return before.peer
}

// Requests are the names of those of the peer that something is known of.
func (m *Meter) Requests(peer string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.books[peer] == nil {
		return nil
	}
	return slices.Collect(maps.Keys(m.books[peer].lines))
}

// Reserve meters what is reserved for the Request of the peer, nil for none: since then, or from now on if something was before.
func (m *Meter) Reserve(key RequestKey, reservation *MeteredReservation, since, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.books[key.Peer] == nil {
		return
	}
	var latest *MeteredReservation
	if line := m.books[key.Peer].lines[key.Request]; line != nil {
		latest = line.latest
	}
	if equality.Semantic.DeepEqual(latest, reservation) {
		return
	}
	if latest != nil || since.After(now) {
		since = now
	}
	m.change(key.Peer, key.Request, since, func(s *meterState) { s.reservation = reservation })
	m.books[key.Peer].lines[key.Request].latest = reservation
}

// RequestKey names a Request of a peer.
type RequestKey struct{ Peer, Request string }

// NewMeteredReservation is what the Request reserves. It may come from a peer: a name or a price that is none is left out.
func NewMeteredReservation(r *v1alpha1.Request) *MeteredReservation {
	made := &MeteredReservation{Reserved: r.Locked()}
	if name := r.Spec.Application.Name; isApplication(name) && name != v1alpha1.OtherApplications {
		made.Application = name
	}
	if price := r.Status.Price; price != nil && price.Amount.Sign() > 0 && currencyForm.MatchString(price.Currency) && len(made.Reserved) > 0 {
		made.Price = price
	}
	return made
}

// change has the state of a line change. What was counted is never changed: it may have been told to the peer.
func (m *Meter) change(peer, request string, at time.Time, by func(*meterState)) {
	book := m.books[peer]
	if book == nil {
		return
	}
	line := book.lines[request]
	if line == nil {
		line = &meterLine{meterState: meterState{used: amounts{}}}
		book.lines[request] = line
	}
	if at.Before(book.since) {
		at = book.since
	}
	line.changes = append(line.changes, meterChange{at, by})
}

// Counts reports whether there is something to count for the peer.
func (m *Meter) Counts(peer string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.books[peer] != nil && len(m.books[peer].lines) > 0
}

// Tally returns, for each day on which there was something, what is to be added to what was counted, until then and by the prices of
// now. It changes nothing: see Commit.
func (m *Meter) Tally(peer string, until time.Time, prices *v1alpha1.Prices) []Tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	book := m.books[peer]
	if book == nil {
		return nil
	}
	sums := tallies{prices: prices, days: map[time.Time]map[entryKey]*tallied{}}
	for _, line := range book.lines {
		at := book.since
		state := line.advance(until, func(s *meterState, to time.Time) {
			sums.add(s, at, to)
			at = to
		})
		sums.add(&state, at, until)
	}
	var all []Tally
	for _, day := range slices.SortedFunc(maps.Keys(sums.days), time.Time.Compare) {
		end := day.Add(24 * time.Hour)
		if end.After(until) {
			end = until
		}
		all = append(all, Tally{Day: day, Until: end, sums: sums.days[day]})
	}
	return all
}

// advance returns the state at that time. Each state before is shown with when it ends.
func (l *meterLine) advance(until time.Time, each func(*meterState, time.Time)) meterState {
	state := meterState{used: maps.Clone(l.used), reservation: l.reservation}
	for _, change := range l.until(until) {
		each(&state, change.at)
		change.by(&state)
	}
	return state
}

// until are the changes until then, in their order.
func (l *meterLine) until(until time.Time) []meterChange {
	due := slices.DeleteFunc(slices.Clone(l.changes), func(c meterChange) bool { return c.at.After(until) })
	slices.SortStableFunc(due, func(a, b meterChange) int { return a.at.Compare(b.at) })
	return due
}

// Commit says that what Tally has returned until then is stored.
func (m *Meter) Commit(peer string, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	book := m.books[peer]
	if book == nil || !until.After(book.since) {
		return
	}
	for request, line := range book.lines {
		line.meterState = line.advance(until, func(*meterState, time.Time) {})
		line.changes = slices.DeleteFunc(line.changes, func(c meterChange) bool { return !c.at.After(until) })
		if len(line.used)+len(line.changes) == 0 && line.reservation == nil {
			delete(book.lines, request)
		}
	}
	book.since = until
}

// A Tally is what was used on one day, or in a part of it.
type Tally struct {
	// Day is when the day begins, and Until what is counted.
	Day, Until time.Time

	sums map[entryKey]*tallied
}

type entryKey struct{ application, currency string }

// tallied are exact sums of units times seconds, and of the price of an hour times seconds.
type tallied struct {
	used, reserved map[corev1.ResourceName]*inf.Dec
	cost           *inf.Dec
}

type tallies struct {
	prices *v1alpha1.Prices
	days   map[time.Time]map[entryKey]*tallied
}

// add counts what is held from one moment to the other.
func (t *tallies) add(s *meterState, from, to time.Time) {
	if len(s.used) == 0 && (s.reservation == nil || len(s.reservation.Reserved) == 0) {
		return
	}
	for from.Before(to) {
		day := from.UTC().Truncate(24 * time.Hour)
		end := day.Add(24 * time.Hour)
		if end.After(to) {
			end = to
		}
		t.addWithin(day, s, inf.NewDec(int64(end.Sub(from)), 9))
		from = end
	}
}

func (t *tallies) addWithin(day time.Time, s *meterState, seconds *inf.Dec) {
	var reserved amounts
	key, agreed := entryKey{}, (*v1alpha1.Price)(nil)
	if s.reservation != nil {
		reserved = amountsOf(s.reservation.Reserved)
		key.application, agreed = s.reservation.Application, s.reservation.Price
	}
	beyond := PricePerHour(t.prices, beyond(s.used, reserved))
	switch {
	case agreed != nil:
		key.currency = agreed.Currency
	case beyond.PerHour.Sign() > 0:
		key.currency = beyond.Currency
	}
	sum := t.at(day, key)
	addUnits(sum.used, s.used, seconds)
	addUnits(sum.reserved, reserved, seconds)
	if agreed != nil {
		sum.cost.Add(sum.cost, new(inf.Dec).Mul(exact(agreed.Amount), seconds))
	}
	if beyond.PerHour.Sign() > 0 {
		key.currency = beyond.Currency
		sum = t.at(day, key)
		sum.cost.Add(sum.cost, beyond.PerHour.Mul(beyond.PerHour, seconds))
	}
}

// beyond is what is used beyond what is reserved.
func beyond(used, reserved amounts) corev1.ResourceList {
	rest := corev1.ResourceList{}
	for name, amount := range used {
		if more := amount - reserved[name]; more > 0 {
			rest[name] = quantityOf(name, more)
		}
	}
	return rest
}

func (t *tallies) at(day time.Time, key entryKey) *tallied {
	if t.days[day] == nil {
		t.days[day] = map[entryKey]*tallied{}
	}
	if t.days[day][key] == nil {
		t.days[day][key] = newTallied()
	}
	return t.days[day][key]
}

func newTallied() *tallied {
	return &tallied{used: map[corev1.ResourceName]*inf.Dec{}, reserved: map[corev1.ResourceName]*inf.Dec{}, cost: new(inf.Dec)}
}

func addUnits(sums map[corev1.ResourceName]*inf.Dec, held amounts, seconds *inf.Dec) {
	for name, amount := range held {
		if amount <= 0 {
			continue
		}
		units := unitsOf(name, quantityOf(name, amount))
		addTo(sums, name, units.Mul(units, seconds))
	}
}

func addTo(sums map[corev1.ResourceName]*inf.Dec, name corev1.ResourceName, more *inf.Dec) {
	if sums[name] == nil {
		sums[name] = new(inf.Dec)
	}
	sums[name].Add(sums[name], more)
}
