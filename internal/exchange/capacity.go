// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A Capacity is what a cluster has to spare at one moment.
type Capacity struct {
	free    amounts
	largest amounts
	held    map[string]amounts            // peer, or nobody "" → what its pods hold on physical nodes
	away    map[string]map[string]amounts // virtual node → peer, or nobody "" → what its pods hold there
}

// Capacity sums up the ledger. What is free is the allocatable of the schedulable physical nodes that have a slot for one
// more pod, less what bound pods ask for, less the margin.
//
// A pod that is not bound yet holds nothing, so that a peer's pod does not change what that peer is offered when it is
// bound: until then it is missing from both sums, and from then on it is in both.
func (l *Ledger) Capacity(margin corev1.ResourceList) Capacity {
	c := Capacity{free: amounts{}, held: map[string]amounts{}, away: map[string]map[string]amounts{}}
	var rooms []amounts
	for name, node := range l.nodes {
		if !physical(node) {
			for peer, sum := range l.held[name] {
				if c.away[name] == nil {
					c.away[name] = map[string]amounts{}
				}
				c.away[name][peer] = maps.Clone(sum) // it goes on changing
			}
			continue
		}
		for peer, sum := range l.held[name] {
			if c.held[peer] == nil {
				c.held[peer] = amounts{}
			}
			c.held[peer].add(sum)
		}
	}
	for _, room := range l.rooms {
		c.free.add(room)
		rooms = append(rooms, room)
	}
	c.free.subtract(amountsOf(margin))
	c.largest = largest(rooms)
	c.largest.limitNamed(c.free)
	return c
}

// room is what is free on the node. The scheduler places nothing where all slots for pods are taken, so nothing is free
// there.
func (l *Ledger) room(node *corev1.Node) amounts {
	room := usable(node)
	for _, sum := range l.held[node.Name] {
		room.subtract(sum)
	}
	if room[corev1.ResourcePods] == 0 {
		for name := range room {
			room[name] = 0 // which is not the same as a resource that there is none of
		}
	}
	return room
}

// usable is what pods can ask of the node.
func usable(node *corev1.Node) amounts {
	all := amountsOf(node.Status.Allocatable)
	maps.DeleteFunc(all, func(name corev1.ResourceName, amount int64) bool {
		// Volume slots are not requested by pods, and a resource of which the node has nothing is not worth a word.
		return amount == 0 || strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix)
	})
	return all
}

// Claims are what bounds the offer to one peer, besides what there is.
type Claims struct {
	// Limits are the most that the peer may have; what they do not name is not limited.
	Limits corev1.ResourceList
	// Guarantee is what is locked for the peer itself.
	Guarantee corev1.ResourceList
	// Others says what is locked for others: the name of the Peer → its guarantee.
	Others map[string]corev1.ResourceList
}

// Availability returns what the peer can be offered: what is free and not locked for others, and what its pods hold, and
// no more of a resource than its limits allow. It is never negative.
func (c Capacity) Availability(peer string, claims Claims) corev1.ResourceList {
	sum := c.unlocked(peer, claims)
	sum.add(c.held[peer])
	sum.limitNamed(amountsOf(claims.Limits))
	return sum.list()
}

// unlocked is what is free less what others are guaranteed and do not hold. If there is less than all guarantees
// together, each peer has a part of it in the proportion of what it lacks, so that no two are offered the same.
func (c Capacity) unlocked(peer string, claims Claims) amounts {
	rest := maps.Clone(c.free)
	own, others := c.lacks(peer, claims.Guarantee), amounts{}
	for other, guarantee := range claims.Others {
		if other != peer {
			others.add(c.lacks(other, guarantee))
		}
	}
	for name, free := range rest {
		rest[name] = unlocked(free, own[name], others[name])
	}
	return rest
}

// unlocked is what is free for a peer that is guaranteed so much more than it has, as others are. If there is less than all
// that is guaranteed, each has a part in proportion.
func unlocked(free, own, others int64) int64 { return max(free-others, portion(free, own, others)) }

// lacks returns what the peer is guaranteed beyond what its pods hold.
func (c Capacity) lacks(peer string, guarantee corev1.ResourceList) amounts {
	missing := amountsOf(guarantee)
	missing.subtract(c.held[peer])
	return missing
}

// portion returns free*own/(own+others), rounded down, or nothing if one of them is nothing. It is not more than what the
// others leave if both fit into what is free.
func portion(free, own, others int64) int64 {
	if free <= 0 || own <= 0 || others <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(free), uint64(own))
	quotient, _ := bits.Div64(high, low, uint64(own)+uint64(others))
	return int64(min(quotient, uint64(free))) //nolint:gosec // at most free
}

// Free returns what a peer without pods here can be offered.
func (c Capacity) Free() corev1.ResourceList { return c.free.list() }

// Held returns what the peer's pods hold.
func (c Capacity) Held(peer string) corev1.ResourceList { return c.held[peer].list() }

// LargestPod returns the requests of a large pod of the peer that fits now: all that is free on the node that is the
// emptiest in cpu and memory alike, as far as its limits and what is locked for others leave it to the peer. It is nil if
// no pod fits on any node.
func (c Capacity) LargestPod(peer string, claims Claims) corev1.ResourceList {
	if len(c.largest) == 0 {
		return nil
	}
	left := amountsOf(claims.Limits)
	left.subtract(c.held[peer])
	pod := maps.Clone(c.largest)
	pod.limitNamed(left)
	pod.limitNamed(c.unlocked(peer, claims))
	list := pod.list()
	delete(list, corev1.ResourcePods)
	return list
}

// largest returns the room whose scarcer one of cpu and memory, as a share of the most that any room has, is the
// largest.
func largest(rooms []amounts) amounts {
	var mostCPU, mostMemory int64
	for _, room := range rooms {
		mostCPU = max(mostCPU, room[corev1.ResourceCPU])
		mostMemory = max(mostMemory, room[corev1.ResourceMemory])
	}
	var best amounts
	for _, room := range rooms {
		if room[corev1.ResourcePods] == 0 {
			continue
		}
		if best == nil || compareRooms(room, best, mostCPU, mostMemory) > 0 {
			best = room
		}
	}
	return maps.Clone(best)
}

// compareRooms orders rooms totally, so that the largest does not depend on the order in which a map gives the nodes.
func compareRooms(a, b amounts, mostCPU, mostMemory int64) int {
	scarcer := func(room amounts) int64 {
		return min(permille(room[corev1.ResourceCPU], mostCPU), permille(room[corev1.ResourceMemory], mostMemory))
	}
	if scarcer(a) != scarcer(b) {
		return int(scarcer(a) - scarcer(b))
	}
	names := slices.Concat(mandatory, slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
	for _, name := range names {
		if a[name] > b[name] {
			return 1
		}
		if a[name] < b[name] {
			return -1
		}
	}
	return 0
}

// permille does not overflow: no amount exceeds 2^53.
func permille(part, whole int64) int64 {
	if whole == 0 {
		return 0
	}
	return part * 1000 / whole
}

// limitNamed lowers what most names, and leaves the rest.
func (a amounts) limitNamed(most amounts) {
	for name, amount := range most {
		if a[name] > amount {
			a[name] = amount
		}
	}
}

// maxNames is how many resources an advertisement can name.
const maxNames = 64

// mandatory are the resources that every advertisement names, also when there is nothing of them.
//
// A provider whose nodes do not count ephemeral-storage (their kubelets run without local storage isolation) offers 0
// of it: its scheduler places no pod that asks for any there, so neither may ours. Pods that ask for none fit.
var mandatory = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
}

// amounts is a list of resources in the units that the scheduler calculates in: thousandths of cores, and whole bytes,
// pods and devices of all else.
type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, quantity := range list {
		a[name] = amountOf(name, quantity)
	}
	return a
}

// amountOf never exceeds what an advertisement may say, so that the absurd request of one pod cannot overflow a sum.
func amountOf(name corev1.ResourceName, quantity resource.Quantity) int64 {
	if quantity.Sign() <= 0 {
		return 0
	}
	if most := MaxQuantity(name); quantity.Cmp(most) > 0 {
		quantity = most
	}
	if name == corev1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

func (a amounts) add(b amounts) {
	for name, amount := range b {
		if a[name] > math.MaxInt64-amount {
			a[name] = math.MaxInt64
			continue
		}
		a[name] += amount
	}
}

// book adds or, with the sign -1, takes off what was added before.
func (a amounts) book(b amounts, sign int64) {
	for name, amount := range b {
		a[name] += sign * amount
	}
}

// subtract stops at zero.
func (a amounts) subtract(b amounts) {
	for name := range a {
		a[name] = max(0, a[name]-b[name])
	}
}

// list has the mandatory resources in any case, and at most maxNames.
func (a amounts) list() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a)+len(mandatory))
	for _, name := range mandatory {
		list[name] = quantityOf(name, a[name])
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if len(list) == maxNames {
			break
		}
		list[name] = quantityOf(name, a[name])
	}
	return list
}

func quantityOf(name corev1.ResourceName, amount int64) resource.Quantity {
	most := MaxQuantity(name)
	switch {
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(min(amount, most.MilliValue()), resource.DecimalSI)
	case isBytes(name):
		return *resource.NewQuantity(min(amount, most.Value()), resource.BinarySI)
	default:
		return *resource.NewQuantity(min(amount, most.Value()), resource.DecimalSI)
	}
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// MaxQuantity is the largest amount of a resource that an advertisement may name: 10^8 cores, and 2^53 of all else (8
// PiB of memory), which is beyond any cluster and far enough from where 64-bit arithmetic in thousandths overflows.
func MaxQuantity(name corev1.ResourceName) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewQuantity(1e8, resource.DecimalSI)
	}
	return *resource.NewQuantity(1<<53, resource.BinarySI)
}
