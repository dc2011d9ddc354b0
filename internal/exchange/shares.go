// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// shares is how what is free in the cluster is shared out among the peers. Its sums are kept while pods come and go, so that
// to let one pod of one peer in costs the same however many pods, peers, Requests and nodes there are.
type shares struct {
	byPeer   map[string]*share
	free     amounts            // on all schedulable nodes together
	underway amounts            // what was let in and is not on a node yet, of all peers
	promised amounts            // what is guaranteed to peers or reserved for their Requests, used or not
	locked   amounts            // what is promised and not used yet, of all peers
	relayed  map[string]amounts // broker → what members have reserved through it
}

// share is that of one peer.
type share struct {
	held       amounts // by its pods on nodes, wherever they are
	claimed    amounts // by its pods that were let in, on a node or not
	guaranteed amounts
	requests   map[string]*reservation // by the name of the Request
	reserved   amounts                 // for all its Requests
	untaken    amounts                 // what is reserved for its Requests beyond what the pods of each have taken
}

// reservation is what a share has for one Request.
type reservation struct {
	reserved amounts
	taken    amounts // by the pods of the Request that were let in, on a node or not
}

func newShares() shares {
	return shares{
		byPeer: map[string]*share{}, free: amounts{}, underway: amounts{}, promised: amounts{}, locked: amounts{}, relayed: map[string]amounts{},
	}
}

func (r *reservation) untaken() amounts {
	rest := maps.Clone(r.reserved)
	rest.subtract(r.taken)
	return rest
}

// underway is what was let in and is not on a node yet.
func (s *share) underway() amounts {
	rest := maps.Clone(s.claimed)
	rest.subtract(s.held)
	return rest
}

// lacks is what is locked for the peer: what it is guaranteed beyond what it holds and what is underway, and at least what is
// reserved for its Requests and not taken.
func (s *share) lacks() amounts {
	rest := maps.Clone(s.guaranteed)
	rest.subtract(s.held)
	rest.subtract(s.underway())
	for name, amount := range s.untaken {
		rest[name] = max(rest[name], amount)
	}
	return rest
}

func (s *share) empty() bool {
	return s.held[corev1.ResourcePods] == 0 && len(s.claimed)+len(s.guaranteed)+len(s.requests) == 0
}

// change changes the share of a peer, and the sums with it.
func (s *shares) change(peer string, by func(*share)) {
	of := s.byPeer[peer]
	if of == nil {
		of = &share{
			held: amounts{}, claimed: amounts{}, guaranteed: amounts{},
			requests: map[string]*reservation{}, reserved: amounts{}, untaken: amounts{},
		}
		s.byPeer[peer] = of
	}
	s.sum(of, -1)
	by(of)
	s.sum(of, 1)
	if of.empty() {
		delete(s.byPeer, peer)
	}
}

func (s *shares) sum(of *share, sign int64) {
	s.underway.book(of.underway(), sign)
	s.promised.book(of.guaranteed, sign)
	s.promised.book(of.reserved, sign)
	s.locked.book(of.lacks(), sign)
}

// changeRequest changes what the share has for a Request.
func (s *share) changeRequest(name string, by func(*reservation)) {
	of := s.requests[name]
	if of == nil {
		of = &reservation{}
		s.requests[name] = of
	}
	s.sum(of, -1)
	by(of)
	s.sum(of, 1)
	if len(of.reserved)+len(of.taken) == 0 {
		delete(s.requests, name)
	}
}

func (s *share) sum(of *reservation, sign int64) {
	s.reserved.book(of.reserved, sign)
	s.untaken.book(of.untaken(), sign)
}

// A Claim is what pods of a peer ask for that were let in, whether they are on a node or not. A pod counts from then on: if it
// did so from when it is bound, two that are let in at the same moment could get the same room.
type Claim struct {
	// All is what all pods of the peer ask for together.
	All corev1.ResourceList
	// Request is the name of one of the peer's Requests, and Taken what the pods ask for that name it. By default nothing is said of any.
	Request string
	Taken   corev1.ResourceList
}

// Claim enters the claim of the peer.
func (l *Ledger) Claim(peer string, claim Claim) {
	l.change(peer, func(s *share) {
		s.claimed = amountsOf(claim.All)
		if claim.Request != "" {
			s.changeRequest(claim.Request, func(r *reservation) { r.taken = amountsOf(claim.Taken) })
		}
	})
}

// Guarantee enters what is locked for the peer.
func (l *Ledger) Guarantee(peer string, guarantee corev1.ResourceList) {
	l.change(peer, func(s *share) { s.guaranteed = amountsOf(guarantee) })
}

// SetReserved enters what is reserved for the Request of the peer, whether or not there is so much, and says whether that changed
// anything. Nothing ends the reservation.
func (l *Ledger) SetReserved(peer, request string, all corev1.ResourceList) (changed bool) {
	l.change(peer, func(s *share) {
		s.changeRequest(request, func(r *reservation) {
			before := r.reserved
			r.reserved = amountsOf(all)
			changed = !maps.Equal(before, r.reserved)
			l.relay(request, before, r.reserved)
		})
	})
	return changed
}

// relay sums up what is reserved through a broker.
func (s *shares) relay(request string, before, now amounts) {
	broker := BrokerOf(request)
	if broker == "" {
		return
	}
	sum := s.relayed[broker]
	if sum == nil {
		sum = amounts{}
		s.relayed[broker] = sum
	}
	sum.book(before, -1)
	sum.book(now, 1)
	maps.DeleteFunc(sum, func(_ corev1.ResourceName, amount int64) bool { return amount == 0 })
	if len(sum) == 0 {
		delete(s.relayed, broker)
	}
}

// A Missing is how much of a resource there would have to be besides what there is.
type Missing struct {
	Resource corev1.ResourceName
	Amount   resource.Quantity
}

// Reserve reserves so much for the Request of the peer if there is room for it that is promised to nobody else. If not, all
// stays as it was, and Reserve returns what is missing of the first resource, by name. What is reserved for the Request already
// does not stand against it, nor does what its pods have taken.
func (l *Ledger) Reserve(peer, request string, all, margin corev1.ResourceList) *Missing {
	free := l.Reservable(peer, request, all, margin)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if more := amountOf(name, all[name]) - amountOf(name, free[name]); more > 0 {
			return &Missing{Resource: name, Amount: quantityOf(name, more)}
		}
	}
	l.SetReserved(peer, request, all)
	return nil
}

// Reservable returns how much of each of these resources can be reserved for the Request of the peer, which may not exist. What is
// reserved for it already, and what its pods have taken, is part of that.
func (l *Ledger) Reservable(peer, request string, these, margin corev1.ResourceList) corev1.ResourceList {
	of, own := l.find(peer, request)
	lacks, kept, free := of.lacks(), amountsOf(margin), corev1.ResourceList{}
	for name := range these {
		has := max(0, own.reserved[name]-own.taken[name])
		others := l.locked[name] - lacks[name] + of.untaken[name] - has
		free[name] = quantityOf(name, own.taken[name]+max(has, l.spare(name, kept)-others))
	}
	return free
}

// Untaken returns what is reserved for the Request of the peer beyond what its pods have taken, and for the peer's other ones. Beside what a
// member asks for through a broker, others are what all members have reserved through that one.
func (l *Ledger) Untaken(peer, request string) (own, others corev1.ResourceList) {
	of, mine := l.find(peer, request)
	beside := of.untaken
	if broker := BrokerOf(request); broker != "" {
		beside = l.relayed[broker]
	}
	if len(beside) == 0 {
		return nil, nil
	}
	own, others = corev1.ResourceList{}, corev1.ResourceList{}
	untaken := mine.untaken()
	for name, all := range beside {
		own[name], others[name] = quantityOf(name, untaken[name]), quantityOf(name, all-untaken[name])
	}
	return own, others
}

// Reserved returns, for each peer with reservations, how much of them its pods do not hold on a node yet, as far as that is
// known: what is not taken, and what may be on its way to a node.
func (l *Ledger) Reserved() map[string]corev1.ResourceList {
	all := map[string]corev1.ResourceList{}
	for peer, of := range l.byPeer {
		if len(of.requests) == 0 {
			continue
		}
		rest, underway := corev1.ResourceList{}, of.underway()
		for name, reserved := range of.reserved {
			if lacks := min(reserved, of.untaken[name]+underway[name]); lacks > 0 {
				rest[name] = quantityOf(name, lacks)
			}
		}
		all[peer] = rest
	}
	return all
}

// find returns the share of the peer and what it has for the Request: empty ones if there are none.
func (s *shares) find(peer, request string) (*share, *reservation) {
	of, own := s.byPeer[peer], &reservation{}
	if of == nil {
		return &share{}, own
	}
	if r := of.requests[request]; r != nil {
		own = r
	}
	return of, own
}

// spare is what is free and was given to nobody yet.
func (s *shares) spare(name corev1.ResourceName, margin amounts) int64 {
	return max(0, s.free[name]-margin[name]-s.underway[name])
}

// Short returns the first resource, by name, of which a pod of the peer that names the Request, or none, cannot have so much
// more without taking what is promised to others or to other Requests, and whether there is one. Of what nobody else is
// promised it can have more than there is: it then waits for the scheduler, or for an autoscaler. Where somebody else is, it
// cannot, even if that one uses all of it: a pod that waits would get the room of the first of those pods that is made again.
// The margin is for nobody.
func (l *Ledger) Short(peer, request string, more, margin corev1.ResourceList) (corev1.ResourceName, bool) {
	of, own := l.find(peer, request)
	lacks, kept := of.lacks(), amountsOf(margin)
	for _, name := range slices.Sorted(maps.Keys(more)) {
		asked := amountOf(name, more[name])
		// Of what is locked for the peer, the pod may have all but what is reserved for other Requests.
		may := lacks[name] - of.untaken[name] + max(0, own.reserved[name]-own.taken[name])
		others := l.locked[name] - may
		if asked == 0 || l.promised[name] == of.guaranteed[name]+own.reserved[name] || others == 0 && asked <= may {
			continue
		}
		if asked > unlocked(l.spare(name, kept), may, others) {
			return name, true
		}
	}
	return "", false
}
