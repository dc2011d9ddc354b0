// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"

	"github.com/google/nftables"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A tenant is a peer with its home and its guests, the pods of it that run here, in one family. Each has sets and chains of
// its own, and maps from addresses tell which are a packet's. So the cost of a packet does not depend on their number.
type tenant struct {
	f             family
	number        int
	homes, guests *set
}

func (f family) tenants(all []overlay.Guests) []tenant {
	var tenants []tenant
	for i, g := range all {
		t := tenant{f: f, number: i, homes: f.newSet(fmt.Sprintf("homes-%d-", i)).ofPrefixes(), guests: f.newSet(fmt.Sprintf("guests-%d-", i))}
		t.homes.addPrefixes(f, g.Home, "")
		t.guests.addAddresses(f, g.Pods, "")
		tenants = append(tenants, t)
	}
	return tenants
}

// isGuest matches if the address is a guest's, and isHome if it is at home.
func (t tenant) isGuest(where side) expression {
	return t.f.in(fmt.Sprintf("guests-%d-", t.number), where)
}

func (t tenant) isHome(where side) expression {
	return t.f.in(fmt.Sprintf("homes-%d-", t.number), where)
}

// chain makes an empty chain of the tenant.
func (t tenant) chain(name string) *chain {
	return &chain{name: fmt.Sprintf("%s-%d-%s", name, t.number, t.f.suffix)}
}

// An opening lets what is in one set of addresses open connections to what is in another, or to some ports of it.
type opening struct {
	forth, back expression // accept packets of the family from the first to the second, and the other way around
}

// addOpening adds the opening of that number to the table.
func (f family) addOpening(t *table, number int, o overlay.Opening) opening {
	from, to := fmt.Sprintf("from-%d-", number), fmt.Sprintf("to-%d-", number)
	sets := []*set{f.newSet(from).ofPrefixes(), f.newSet(to).ofPrefixes()}
	sets[0].addPrefixes(f, o.From, "")
	sets[1].addPrefixes(f, o.To, "")
	t.sets = append(t.sets, sets...)
	return opening{
		forth: rule(f.in(from, source), f.in(to, destination), f.acceptPorts(t, fmt.Sprintf("forth-%d-", number), o.Ports, destination)),
		back:  rule(f.in(from, destination), f.in(to, source), f.acceptPorts(t, fmt.Sprintf("back-%d-", number), o.Ports, source)),
	}
}

// acceptPorts accepts what is for these ports, or from them, in a chain of its own: so what is of other addresses passes one rule,
// however many ports there are. Without ports it accepts everything.
func (f family) acceptPorts(t *table, name string, ports []overlay.PortRange, where side) expression {
	if len(ports) == 0 {
		return accept()
	}
	c := &chain{name: name + f.suffix}
	if t.family == nftables.TableFamilyBridge {
		// Neighbours of IPv6 must find each other. And only the first fragment of a packet has the ports: without that one the
		// others are worth nothing.
		c.add(rule(ipv6.icmpTypes(neighbourSolicitation, neighbourAdvertisement), accept()), rule(f.laterFragment(), accept()))
	}
	for _, p := range ports {
		c.add(rule(transport(p.Protocol), portsAt(where, p.First, p.Last), accept()))
	}
	t.chains = append(t.chains, c)
	return jump(c.name)
}

// permit accepts connections, and answers to them.
func (o opening) permit() []expression {
	return []expression{rule(direction(original), o.forth), rule(direction(reply), o.back)}
}
