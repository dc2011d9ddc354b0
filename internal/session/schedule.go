package session

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// minInterval is the least between two renewals.
	minInterval = time.Second
	// missedWindow is the least over which renewals are spread that came due while nobody was there.
	missedWindow = 10 * time.Second
)

// A schedule says when sessions are renewed.
type schedule struct {
	period time.Duration // how often
	life   time.Duration // for how long they are asked for
}

// shortened reports whether the peer's API server gives clearly less than was asked for.
func (s schedule) shortened(h *holding) bool { return h.expires.Sub(h.issued) < s.life/10*9 }

// interval is how long after its making the session is renewed: the period, give or take a tenth so that not all
// sessions are renewed at the same moment, but never later than at half of its life.
func (s schedule) interval(peer types.UID, h *holding) time.Duration {
	period := time.Duration(float64(s.period) * (0.9 + 0.2*fraction(string(peer), h.version())))
	return max(min(period, h.expires.Sub(h.issued)/2), minInterval)
}

// missed reports whether the session should have been renewed before the moment.
func (s schedule) missed(peer types.UID, h *holding, moment time.Time) bool {
	return h.issued.Add(s.interval(peer, h)).Before(moment)
}

// due returns when to renew the session. What came due before since, when we began to look after it, is spread over a
// while, so that a manager that was away does not renew everything at once, but is done before the session ends.
//
// A session from the future was made when our clock was wrong, and counts as missed.
func (s schedule) due(peer types.UID, h *holding, since, now time.Time) time.Time {
	if !s.missed(peer, h, since) && !h.issued.After(now) {
		return h.issued.Add(s.interval(peer, h))
	}
	window := s.period / 10
	if !h.expires.IsZero() {
		window = max(min(window, h.expires.Sub(since)/2), min(window, missedWindow))
	}
	return since.Add(time.Duration(float64(window) * fraction(string(peer), since.String())))
}

// fraction returns a number from 0 to 1 that depends on nothing but the texts.
func fraction(texts ...string) float64 {
	hash := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return float64(binary.BigEndian.Uint64(hash[:])) / math.MaxUint64
}
