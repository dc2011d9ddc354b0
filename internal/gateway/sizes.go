// SPDX-License-Identifier: Apache-2.0

package gateway

import "time"

// How large packets to a peer may be is found out as RFC 8899 has it, by echo requests as large as the packets: it needs nothing
// from routers, many of which drop what is too large without a word.
const (
	// hurry is how soon sizes are tried again while something is not known yet, or has just stopped to pass.
	hurry = time.Second
	// calm is how soon they are tried again otherwise.
	calm = 30 * time.Second
	// firstRounds is how often they are tried in a hurry at first.
	firstRounds = 5
	// misses is how often in a row a size must not be answered until it counts as too large. RFC 8899 has 3, and less to lose.
	misses = 5
)

// innerSizes are the sizes that are tried below the largest that the tunnel itself takes. They are multiples of 16, because
// WireGuard pads packets to that, and each needs a path of 60 bytes more, of 80 more over IPv6: so the last two are for a path of
// 1,280 bytes, the least that IPv6 allows.
var innerSizes = []int{1424, 1392, 1376, 1328, 1264, 1216, 1200}

// sizes are how large packets on the way to an address may be.
type sizes struct {
	rungs  []rung // the largest first
	rounds int
	next   time.Time // when to judge the last round, or to begin another one
	judged bool      // whether the last round is
	fits   int       // the largest size that passes; 0 if that is not known
}

// A rung is one size that is tried.
type rung struct {
	size   int
	passes bool
	missed int // requests in a row without an answer, the last one included
}

// newSizes returns what is to be tried on a way that takes packets of at most that size, because of its interfaces.
func newSizes(largest int) *sizes {
	s := &sizes{rungs: []rung{{size: largest}}}
	for _, size := range innerSizes {
		if size < largest {
			s.rungs = append(s.rungs, rung{size: size})
		}
	}
	return s
}

// round returns the sizes to try now, if it is time to.
func (s *sizes) round(now time.Time) []int {
	if now.Before(s.next) {
		return nil
	}
	if s.rounds > 0 && !s.judged {
		s.judged = true
		if certain := s.judge(); certain && s.rounds >= firstRounds {
			s.next = now.Add(calm)
			return nil
		}
	}
	s.rounds++
	s.judged, s.next = false, now.Add(hurry)
	var all []int
	for i := range s.rungs {
		s.rungs[i].missed++
		all = append(all, s.rungs[i].size)
	}
	return all
}

// judge draws conclusions from the last round, and reports whether there was nothing to wonder at. If nothing passes, not even
// what every path takes, sizes are not what is wrong.
func (s *sizes) judge() (certain bool) {
	fits, certain := 0, true
	for i := range s.rungs {
		r := &s.rungs[i]
		r.passes = r.passes && r.missed < misses
		certain = certain && (!r.passes || r.missed == 0)
		if r.passes && fits == 0 {
			fits = r.size
		}
	}
	if fits > 0 {
		s.fits = fits
	}
	return certain
}

// answer notes that a request of that size was answered.
func (s *sizes) answer(size int) {
	for i := range s.rungs {
		if r := &s.rungs[i]; r.size == size {
			r.passes, r.missed = true, 0
		}
	}
}
