//go:build linux

package kernel

import (
	"fmt"

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

// An opening lets what is in one set of addresses open connections to what is in another.
type opening struct {
	sets        []*set
	forth, back expression // match packets of the family from the first to the second, and the other way around
}

// opening makes the opening of that number.
func (f family) opening(number int, o overlay.Opening) opening {
	from, to := fmt.Sprintf("from-%d-", number), fmt.Sprintf("to-%d-", number)
	sets := []*set{f.newSet(from).ofPrefixes(), f.newSet(to).ofPrefixes()}
	sets[0].addPrefixes(f, o.From, "")
	sets[1].addPrefixes(f, o.To, "")
	return opening{
		sets:  sets,
		forth: rule(f.in(from, source), f.in(to, destination)),
		back:  rule(f.in(from, destination), f.in(to, source)),
	}
}

// permit accepts connections, and answers to them.
func (o opening) permit() []expression {
	return []expression{
		rule(o.forth, direction(original), accept()),
		rule(o.back, direction(reply), accept()),
	}
}
