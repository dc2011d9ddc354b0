// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// linger is for how long nothing leaves for the ranges of a peer that is gone. Whoever still knows an address there, such as
// a pod with an open connection, would send it elsewhere in the clear.
const linger = 10 * time.Minute

// Departed remembers in which ranges peers were seen. That a process which starts anew knows nothing of them is a stated limit.
type Departed struct {
	Clock clock.PassiveClock

	last map[netip.Prefix]time.Time // range → when a peer was last seen there
}

// Of returns the ranges of peers that had them within the last minutes, those of the given ones included.
func (d *Departed) Of(peers []overlay.Peer) []netip.Prefix {
	if d.last == nil {
		d.last = map[netip.Prefix]time.Time{}
	}
	now := d.Clock.Now()
	for _, p := range peers {
		for _, m := range p.Theirs {
			if m.Seen.IsValid() {
				d.last[m.Seen] = now
			}
		}
	}
	var ranges []netip.Prefix
	for r, seen := range d.last {
		if now.Sub(seen) >= linger {
			delete(d.last, r)
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges
}
