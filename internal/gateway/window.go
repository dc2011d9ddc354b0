// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"time"
)

const (
	// probeInterval is how often each peer is asked for an echo.
	probeInterval = 500 * time.Millisecond
	// deadAfter is how long a peer may be silent before its tunnel counts as down. So many echoes are hardly ever lost by chance.
	deadAfter = 2500 * time.Millisecond
	// windowSize is of how many echo requests loss and round trip are told: those of the last two minutes.
	windowSize = 240
)

// An echo is one request and, if it was answered, how long that took.
type echo struct {
	sequence uint16
	sent     time.Time
	took     time.Duration // 0 while there is no answer
}

// A window is what is known of the newest echo requests to one address.
type window struct {
	echoes   []echo // the oldest first
	next     uint16
	answered time.Time // when the last answer came
}

// send notes a request and returns its sequence number.
func (w *window) send(now time.Time) uint16 {
	if len(w.echoes) == windowSize {
		w.echoes = slices.Delete(w.echoes, 0, 1)
	}
	sequence := w.next
	w.next++
	w.echoes = append(w.echoes, echo{sequence: sequence, sent: now})
	return sequence
}

// receive notes an answer. One to no request, or a second one, is not counted.
func (w *window) receive(sequence uint16, now time.Time) {
	i := slices.IndexFunc(w.echoes, func(e echo) bool { return e.sequence == sequence })
	if i < 0 || w.echoes[i].took != 0 {
		return
	}
	w.echoes[i].took = max(now.Sub(w.echoes[i].sent), 1)
	w.answered = now
}

// A measurement says how the way to a peer is.
type measurement struct {
	alive     bool
	until     time.Time     // when it counts as down if nothing is answered until then; zero if it is not alive
	known     bool          // whether anything was measured
	roundTrip time.Duration // the median; 0 if nothing was answered
	loss      int32         // of a hundred, rounded up
}

// measure judges those requests that were answered, or had their time.
func (w *window) measure(now time.Time) measurement {
	var m measurement
	if until := w.answered.Add(deadAfter); now.Before(until) {
		m.alive, m.until = true, until
	}
	var took []time.Duration
	judged, lost := 0, 0
	for _, e := range w.echoes {
		switch {
		case e.took != 0:
			took = append(took, e.took)
		case now.Sub(e.sent) < deadAfter:
			continue
		default:
			lost++
		}
		judged++
	}
	m.known = judged > 0
	if m.known {
		m.loss = int32((lost*100 + judged - 1) / judged) //nolint:gosec // at most 100
	}
	if len(took) > 0 {
		slices.Sort(took)
		m.roundTrip = took[len(took)/2]
	}
	return m
}
