// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// refresh is how often names of endpoints are looked up again.
	refresh = 30 * time.Second
	// lookupTimeout is how long one name may take.
	lookupTimeout = 5 * time.Second
	// mostAddresses is how many addresses of one name are dialled.
	mostAddresses = 4
)

// names looks up the endpoints of peers that are names, so that nobody else waits for that.
type names struct {
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	clock   clock.WithTicker
	changed func() // called when a name has other addresses than before
	poke    chan struct{}

	mu    sync.Mutex
	found map[string][]netip.Addr // name that is wanted → its addresses, sorted; none if they are not known
}

func newNames(c clock.WithTicker, changed func()) *names {
	return &names{
		lookup: net.DefaultResolver.LookupNetIP, clock: c, changed: changed,
		poke: make(chan struct{}, 1), found: map[string][]netip.Addr{},
	}
}

// Run looks the wanted names up, again and again, until ctx ends.
func (n *names) Run(ctx context.Context) error {
	ticker := n.clock.NewTicker(refresh)
	defer ticker.Stop()
	for {
		n.lookUp(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-n.poke:
		}
	}
}

// lookUp asks for all names at the same time. One that cannot be found now keeps the addresses that it had.
func (n *names) lookUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, name := range n.wanted() {
		asking.Go(func() {
			addresses, err := n.lookup(ctx, "ip", name)
			if err == nil {
				n.keep(name, addresses)
			}
		})
	}
	asking.Wait()
}

func (n *names) wanted() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for name := range n.found {
		all = append(all, name)
	}
	return all
}

func (n *names) keep(name string, addresses []netip.Addr) {
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	slices.SortFunc(addresses, netip.Addr.Compare) // name servers shuffle them
	addresses = addresses[:min(len(addresses), mostAddresses)]
	n.mu.Lock()
	before, wanted := n.found[name]
	if wanted {
		n.found[name] = addresses
	}
	n.mu.Unlock()
	if wanted && !slices.Equal(before, addresses) {
		n.changed()
	}
}

// resolve returns the endpoints with addresses in place of names, as far as these are known, and in the same order. What is not
// among these is not looked up any more.
func (n *names) resolve(all map[string][]v1alpha1.HostPort) map[string][]netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	wanted, fresh := map[string][]netip.Addr{}, false
	resolved := map[string][]netip.AddrPort{}
	for peer, endpoints := range all {
		for _, text := range endpoints {
			if e, err := netip.ParseAddrPort(string(text)); err == nil {
				resolved[peer] = append(resolved[peer], e)
				continue
			}
			name, port, ok := splitHostPort(string(text))
			if !ok {
				continue
			}
			addresses, known := n.found[name]
			fresh = fresh || !known
			wanted[name] = addresses
			for _, a := range addresses {
				resolved[peer] = append(resolved[peer], netip.AddrPortFrom(a, port))
			}
		}
	}
	n.found = wanted
	if fresh {
		select {
		case n.poke <- struct{}{}:
		default:
		}
	}
	return resolved
}

func splitHostPort(text string) (string, uint16, bool) {
	name, digits, err := net.SplitHostPort(text)
	if err != nil || name == "" {
		return "", 0, false
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	return name, uint16(port), err == nil
}
