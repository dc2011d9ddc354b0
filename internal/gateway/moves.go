// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// restless is how often a peer moves within restlessFor if its packets come from two places in turns. One that really moves, or
	// whose gateway is replaced, does so less often.
	restless    = 4
	restlessFor = time.Minute
)

// moves are the last endpoints of a peer that answered, the newest last.
type moves []move

type move struct {
	endpoint netip.AddrPort
	at       time.Time // when it was seen first
}

// note adds the endpoint that is in use.
func (m moves) note(endpoint netip.AddrPort, now time.Time) moves {
	if !endpoint.IsValid() || len(m) > 0 && m[len(m)-1].endpoint == endpoint {
		return m
	}
	m = append(m, move{endpoint, now})
	return m[max(0, len(m)-restless-1):]
}

// places returns the endpoints between which the peer goes back and forth, sorted, or none if it does not.
func (m moves) places(now time.Time) []netip.AddrPort {
	if len(m) <= restless || now.Sub(m[0].at) >= restlessFor {
		return nil
	}
	var all []netip.AddrPort
	for _, one := range m {
		all = append(all, one.endpoint)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}
