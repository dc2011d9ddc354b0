package tenant

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// claimant is a ShadowPod that needs a pod, and the peer whose it is.
type claimant struct {
	types.NamespacedName
	uid  types.UID
	peer string
}

// ledger says how much the pods of each peer ask for, in all its twins together. A ShadowPod has an account there from
// the moment in which it gets room for its pod, which is before the pod exists, until it needs no pod any more. So pods
// that the cache does not show yet count, a pod that is made again keeps its place, and none counts twice.
type ledger struct {
	mu       sync.Mutex
	accounts map[types.NamespacedName]account
	used     map[string]corev1.ResourceList // peer → sum of its accounts
	forRoom  waiting                        // who got no pod because of the peer's limits or access
	refused  waiting                        // whom the policies refused, or are about to be asked about
}

// waiting are ShadowPods that got no pod, and the peers whose they are.
type waiting map[types.NamespacedName]string

// of returns those of the peer.
func (w waiting) of(peer string) []types.NamespacedName {
	var names []types.NamespacedName
	for name, whose := range w {
		if whose == peer {
			names = append(names, name)
		}
	}
	return names
}

// account is how much a ShadowPod's pod asks for.
type account struct {
	claimant
	demand corev1.ResourceList
}

func newLedger() *ledger {
	return &ledger{
		accounts: map[types.NamespacedName]account{},
		used:     map[string]corev1.ResourceList{},
		forRoom:  waiting{},
		refused:  waiting{},
	}
}

// enter notes that the ShadowPod waits, until it gets room or leaves. It comes before the look at what may stand against
// it, so that no change of that is missed. An account of an earlier ShadowPod of the name is closed. It returns those
// that may have room by that.
func (l *ledger) enter(who claimant) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	var freed []types.NamespacedName
	if old, ok := l.accounts[who.NamespacedName]; ok && old.uid != who.uid {
		l.set(who.NamespacedName, nil)
		freed = l.forRoom.of(old.peer)
	}
	l.forRoom[who.NamespacedName] = who.peer
	return freed
}

// reserve gives the ShadowPod room for its pod if the limits leave it. What the ShadowPod has already does not stand
// against it. If they do not, it has nothing any more, and reserve returns what is short and those that may have room by
// that.
func (l *ledger) reserve(who claimant, demand, limits corev1.ResourceList) (*shortage, []types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, had := l.accounts[who.NamespacedName]
	l.set(who.NamespacedName, nil)
	if short := l.short(who.peer, demand, limits); short != nil {
		if !had {
			return short, nil
		}
		return short, l.forRoom.of(old.peer)
	}
	l.set(who.NamespacedName, &account{claimant: who, demand: demand})
	delete(l.forRoom, who.NamespacedName)
	return nil, nil
}

// short returns the first limit, by name, that the demand would exceed. What is not asked for cannot be short.
func (l *ledger) short(peer string, demand, limits corev1.ResourceList) *shortage {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		asked, limit := demand[name], limits[name]
		total := l.used[peer][name].DeepCopy()
		total.Add(asked)
		if !asked.IsZero() && total.Cmp(limit) > 0 {
			return &shortage{resource: name, limit: limit, asked: asked}
		}
	}
	return nil
}

// change gives the ShadowPod, whose pod exists, room for what it is about to ask for if the limits leave it. If they do
// not, it keeps what it has, and change returns what is short. What it will need no more is free once it is seen to.
func (l *ledger) change(who claimant, demand, limits corev1.ResourceList) *shortage {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, had := l.accounts[who.NamespacedName]
	more := grown(demand, old.demand)
	l.set(who.NamespacedName, nil)
	short := l.short(who.peer, more, limits)
	if short == nil {
		both := maps.Clone(old.demand)
		if both == nil {
			both = corev1.ResourceList{}
		}
		maps.Copy(both, more)
		l.set(who.NamespacedName, &account{claimant: who, demand: both})
	} else if had {
		l.set(who.NamespacedName, &old)
	}
	return short
}

// see takes over what a pod that exists asks for. It returns those that may have room because that is less than before.
func (l *ledger) see(who claimant, demand corev1.ResourceList) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, had := l.accounts[who.NamespacedName]
	l.set(who.NamespacedName, &account{claimant: who, demand: demand})
	delete(l.forRoom, who.NamespacedName)
	if !had || len(grown(old.demand, demand)) == 0 {
		return nil
	}
	return l.forRoom.of(old.peer)
}

// ask notes that the policies are about to be asked about the ShadowPod. It comes before the question, so that no change
// of the policies is missed.
func (l *ledger) ask(who claimant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[who.NamespacedName] = who.peer
}

// allow notes that the policies let the ShadowPod have its pod.
func (l *ledger) allow(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, name)
}

// refuse closes the account of a ShadowPod that the policies refuse. It returns those that may have room by that.
func (l *ledger) refuse(name types.NamespacedName) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.close(name)
}

// leave closes the account of a ShadowPod that needs no pod any more or cannot have one. It returns those that may have
// room by that.
func (l *ledger) leave(name types.NamespacedName) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, name)
	return l.close(name)
}

func (l *ledger) close(name types.NamespacedName) []types.NamespacedName {
	delete(l.forRoom, name)
	old, ok := l.accounts[name]
	if !ok {
		return nil
	}
	l.set(name, nil)
	return l.forRoom.of(old.peer)
}

// waiters returns the ShadowPods of the peer that wait for room, for the peer's access, or for the policies.
func (l *ledger) waiters(peer string) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(l.forRoom.of(peer), l.refused.of(peer)...)
}

// takeRefused returns all that the policies refused and forgets them: they come back if they are refused again.
func (l *ledger) takeRefused() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := slices.Collect(maps.Keys(l.refused))
	clear(l.refused)
	return names
}

// set replaces an account, or closes it.
func (l *ledger) set(name types.NamespacedName, next *account) {
	if old, ok := l.accounts[name]; ok {
		l.book(old.peer, old.demand, (*resource.Quantity).Sub)
		delete(l.accounts, name)
	}
	if next != nil {
		l.accounts[name] = *next
		l.book(next.peer, next.demand, (*resource.Quantity).Add)
	}
}

func (l *ledger) book(peer string, demand corev1.ResourceList, by func(*resource.Quantity, resource.Quantity)) {
	used := l.used[peer]
	if used == nil {
		used = corev1.ResourceList{}
		l.used[peer] = used
	}
	for name, amount := range demand {
		sum := used[name]
		by(&sum, amount)
		used[name] = sum
		if sum.IsZero() {
			delete(used, name)
		}
	}
	if len(used) == 0 {
		delete(l.used, peer)
	}
}

// shortage is a limit that stands against a pod.
type shortage struct {
	resource     corev1.ResourceName
	limit, asked resource.Quantity
}

// grown returns those amounts that are more than before.
func grown(now, before corev1.ResourceList) corev1.ResourceList {
	more := corev1.ResourceList{}
	for name, amount := range now {
		if was := before[name]; amount.Cmp(was) > 0 {
			more[name] = amount
		}
	}
	return more
}

// keeps says that a pod which runs is not given more.
func (s *shortage) keeps() string {
	return fmt.Sprintf("The pod now asks for %s of %s, for which the provider's limit of %s for this cluster has no room: "+
		"it runs on with what it has until other pods of this cluster have ended there, or the limit is raised",
		s.asked.String(), s.resource, s.limit.String())
}

// message says the same however much is used just now.
func (s *shortage) message() string {
	if s.asked.Cmp(s.limit) > 0 {
		return fmt.Sprintf("The pod asks for %s of %s, which is more than the provider's whole limit of %s for this cluster: "+
			"it starts when the limit is raised", s.asked.String(), s.resource, s.limit.String())
	}
	return fmt.Sprintf("The pod asks for %s of %s, for which the provider's limit of %s for this cluster has no room: "+
		"it starts when other pods of this cluster have ended there, or the limit is raised",
		s.asked.String(), s.resource, s.limit.String())
}
