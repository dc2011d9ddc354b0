package exchange

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// shares is how what is free in the cluster is shared out among the peers. Its sums are kept while pods come and go, so that
// to let one pod of one peer in costs the same however many pods, peers and nodes there are.
type shares struct {
	byPeer     map[string]*share
	free       amounts // on all schedulable nodes together
	underway   amounts // what was let in and is not on a node yet, of all peers
	guaranteed amounts // to all peers
	locked     amounts // what is guaranteed and not used yet, of all peers
}

// share is that of one peer.
type share struct {
	held       amounts // by its pods on nodes, wherever they are
	claimed    amounts // by its pods that were let in, on a node or not
	guaranteed amounts
}

func newShares() shares {
	return shares{
		byPeer: map[string]*share{}, free: amounts{}, underway: amounts{}, guaranteed: amounts{}, locked: amounts{},
	}
}

// underway is what was let in and is not on a node yet.
func (s *share) underway() amounts {
	rest := maps.Clone(s.claimed)
	rest.subtract(s.held)
	return rest
}

// lacks is what the peer is guaranteed beyond what it holds and what is underway.
func (s *share) lacks() amounts {
	rest := maps.Clone(s.guaranteed)
	rest.subtract(s.held)
	rest.subtract(s.underway())
	return rest
}

// change changes the share of a peer, and the sums with it.
func (s *shares) change(peer string, by func(*share)) {
	of := s.byPeer[peer]
	if of == nil {
		of = &share{held: amounts{}, claimed: amounts{}, guaranteed: amounts{}}
		s.byPeer[peer] = of
	}
	s.sum(of, -1)
	by(of)
	s.sum(of, 1)
	if of.held[corev1.ResourcePods] == 0 && len(of.claimed)+len(of.guaranteed) == 0 {
		delete(s.byPeer, peer)
	}
}

func (s *shares) sum(of *share, sign int64) {
	s.underway.book(of.underway(), sign)
	s.guaranteed.book(of.guaranteed, sign)
	s.locked.book(of.lacks(), sign)
}

// Claim enters what all pods of the peer ask for that were let in, whether they are on a node or not. A pod counts from then
// on: if it did so from when it is bound, two that are let in at the same moment could get the same room.
func (l *Ledger) Claim(peer string, all corev1.ResourceList) {
	l.change(peer, func(s *share) { s.claimed = amountsOf(all) })
}

// Guarantee enters what is locked for the peer.
func (l *Ledger) Guarantee(peer string, guarantee corev1.ResourceList) {
	l.change(peer, func(s *share) { s.guaranteed = amountsOf(guarantee) })
}

// Short returns the first resource, by name, of which the peer cannot have so much more without taking what others are
// guaranteed, and whether there is one. Of what nobody else is guaranteed it can have more than there is: its pods then wait
// for the scheduler, or for an autoscaler. Where somebody else is, it cannot, even if that one uses all of it: a pod that
// waits would get the room of the first of those pods that is made again. The margin is for nobody.
func (l *Ledger) Short(peer string, more, margin corev1.ResourceList) (corev1.ResourceName, bool) {
	own, lacks, kept := amounts{}, amounts{}, amountsOf(margin)
	if of := l.byPeer[peer]; of != nil {
		own, lacks = of.guaranteed, of.lacks()
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		asked, others := amountOf(name, more[name]), l.locked[name]-lacks[name]
		if asked == 0 || l.guaranteed[name] == own[name] || others == 0 && asked <= lacks[name] {
			continue
		}
		free := max(0, l.free[name]-kept[name]-l.underway[name])
		if asked > unlocked(free, lacks[name], others) {
			return name, true
		}
	}
	return "", false
}
