// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"net/url"
)

// Bytes are what went each way.
type Bytes struct{ Sent, Received uint64 }

// Traffic is what has gone over each open connection of a process to one address.
type Traffic map[uint64]Bytes // the kernel's number of the connection → what went over it

// Since returns what went since an earlier reading, and how many connections have ended meanwhile, whose last bytes are
// not in it.
func (t Traffic) Since(earlier Traffic) (went Bytes, ended int) {
	for id, now := range t {
		went.Sent += now.Sent - earlier[id].Sent
		went.Received += now.Received - earlier[id].Received
	}
	for id := range earlier {
		if _, open := t[id]; !open {
			ended++
		}
	}
	return went, ended
}

// Address is where the cluster's API server listens.
func (c *Cluster) Address() (netip.AddrPort, error) {
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	address, err := netip.ParseAddrPort(server.Host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find address of %s: %w", c.Name, err)
	}
	return address, nil
}
