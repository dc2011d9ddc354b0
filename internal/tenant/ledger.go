package tenant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
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
//
// It decides, in one place, whether a pod may come in: within the limits of its peer, and without taking what others are
// guaranteed.
type ledger struct {
	wake func([]reconcile.Request) // has those looked at again that may have room now
	room Room

	mu       sync.Mutex
	accounts map[types.NamespacedName]account
	used     map[string]corev1.ResourceList   // peer → sum of its accounts
	waiting  map[types.NamespacedName]*waiter // ShadowPods without a pod
	rooms    map[string]*waitingRoom          // peer → those of them that wait for room
}

// A Room knows what this cluster has for the pods of peers, and what of that is guaranteed to whom.
type Room interface {
	// Claim is told what all pods of the peer ask for that were let in, whether they are on a node or not.
	Claim(peer string, all corev1.ResourceList)
	// Short returns a resource of which the peer cannot have so much more without taking what others are guaranteed, and
	// whether there is one.
	Short(peer string, more corev1.ResourceList) (corev1.ResourceName, bool)
	// WaitForRoom returns when both are known.
	WaitForRoom(ctx context.Context) error
}

// account is how much a ShadowPod's pod asks for.
type account struct {
	claimant
	demand corev1.ResourceList
}

func newLedger(room Room, wake func([]reconcile.Request)) *ledger {
	return &ledger{
		wake:     wake,
		room:     room,
		accounts: map[types.NamespacedName]account{},
		used:     map[string]corev1.ResourceList{},
		waiting:  map[types.NamespacedName]*waiter{},
		rooms:    map[string]*waitingRoom{},
	}
}

// enter notes that the ShadowPod waits, until it gets room or leaves. It comes before the look at what may stand against
// it, the policies included, so that no change of that is missed. An account of an earlier ShadowPod of the name is closed.
func (l *ledger) enter(who claimant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.accounts[who.NamespacedName].uid != who.uid {
		l.set(who.NamespacedName, nil)
	}
	l.stepOut(who.NamespacedName)
	l.waiting[who.NamespacedName] = &waiter{peer: who.peer}
}

// reserve gives the ShadowPod room for its pod if the limits, and what others are guaranteed, leave it. If they do not, the
// ShadowPod has nothing any more, and reserve returns what is short.
func (l *ledger) reserve(who claimant, demand, limits corev1.ResourceList) *shortage {
	l.mu.Lock()
	defer l.mu.Unlock()
	short := l.short(who, demand, limits)
	l.forget(who.NamespacedName)
	switch {
	case short == nil:
		l.set(who.NamespacedName, &account{claimant: who, demand: demand})
	case short.reason == v1alpha1.ReasonLimitExceeded:
		l.set(who.NamespacedName, nil)
		l.standInLine(who, demand, limits)
	default: // nobody tells when others need less
		l.set(who.NamespacedName, nil)
		l.waiting[who.NamespacedName] = &waiter{peer: who.peer}
	}
	l.call(who.peer) // it may take less than it was called for
	return short
}

// change gives the ShadowPod, whose pod exists, room for what it is about to ask for if the limits, and what others are
// guaranteed, leave it. If they do not, it keeps what it has, and change returns what is short. What it will need no more is
// free once it is seen to.
func (l *ledger) change(who claimant, demand, limits corev1.ResourceList) *shortage {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.accounts[who.NamespacedName].demand
	short := l.short(who, grown(demand, has), limits)
	if short == nil {
		l.set(who.NamespacedName, &account{claimant: who, demand: quota.Max(has, demand)})
	}
	return short
}

// short returns the first limit, by name, that the demand would exceed, or else what it would take of others' guarantees.
// What the ShadowPod has already does not stand against it, and what is not asked for cannot be short.
func (l *ledger) short(who claimant, demand, limits corev1.ResourceList) *shortage {
	has := l.accounts[who.NamespacedName].demand
	others := quota.Subtract(l.used[who.peer], has)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		asked, limit, total := demand[name], limits[name], others[name]
		total.Add(asked)
		if !asked.IsZero() && total.Cmp(limit) > 0 {
			return &shortage{reason: v1alpha1.ReasonLimitExceeded, resource: name, limit: limit, asked: asked}
		}
	}
	more := quota.SubtractWithNonNegativeResult(demand, has)
	if name, is := l.room.Short(who.peer, more); is {
		return &shortage{reason: v1alpha1.ReasonNoRoom, resource: name, asked: demand[name]}
	}
	return nil
}

// see takes over what a pod that exists asks for.
func (l *ledger) see(who claimant, demand corev1.ResourceList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(who.NamespacedName)
	l.set(who.NamespacedName, &account{claimant: who, demand: demand})
}

// refuse closes the account of a ShadowPod that the policies refuse.
func (l *ledger) refuse(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(name, nil)
}

// leave forgets a ShadowPod that needs no pod any more or cannot have one.
func (l *ledger) leave(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waited := l.forget(name)
	l.set(name, nil)
	if waited != nil {
		l.call(waited.peer)
	}
}

// waiters returns the ShadowPods of the peer that wait for room, for the peer's access, or for the policies; those of all
// peers if none is named.
func (l *ledger) waiters(peer string) []reconcile.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	var requests []reconcile.Request
	for name, w := range l.waiting {
		if peer == "" || w.peer == peer {
			requests = append(requests, reconcile.Request{NamespacedName: name})
		}
	}
	return requests
}

// set replaces an account, or closes it, and calls those that wait if there is more room by that.
func (l *ledger) set(name types.NamespacedName, next *account) {
	old, had := l.accounts[name]
	delete(l.accounts, name)
	l.book(old.peer, quota.Subtract, old.demand)
	var demand corev1.ResourceList
	if next != nil {
		demand = next.demand
		l.accounts[name] = *next
		l.book(next.peer, quota.Add, demand)
	}
	if had && (next == nil || len(grown(old.demand, demand)) > 0) {
		l.call(old.peer)
	}
}

func (l *ledger) book(peer string, by func(a, b corev1.ResourceList) corev1.ResourceList, demand corev1.ResourceList) {
	l.used[peer] = quota.RemoveZeros(by(l.used[peer], demand))
	if len(l.used[peer]) == 0 {
		delete(l.used, peer)
	}
	if peer != "" {
		l.room.Claim(peer, l.used[peer])
	}
}

// shortage is what stands against a pod: a limit, or what others are guaranteed, of which its peer learns nothing.
type shortage struct {
	reason       string
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
	return s.text("now asks", "runs on with what it has until")
}

// message says the same however much is used just now.
func (s *shortage) message() string {
	if s.reason == v1alpha1.ReasonLimitExceeded && s.asked.Cmp(s.limit) > 0 {
		return fmt.Sprintf("The pod asks for %s of %s, which is more than the provider's whole limit of %s for this cluster: "+
			"it starts when the limit is raised", s.asked.String(), s.resource, s.limit.String())
	}
	return s.text("asks", "starts when")
}

func (s *shortage) text(asks, then string) string {
	if s.reason == v1alpha1.ReasonNoRoom {
		return fmt.Sprintf("The pod %s for %s of %s, and the provider has less than that free for this cluster: it %s there is more",
			asks, s.asked.String(), s.resource, then)
	}
	return fmt.Sprintf("The pod %s for %s of %s, for which the provider's limit of %s for this cluster has no room: "+
		"it %s other pods of this cluster have ended there, or the limit is raised",
		asks, s.asked.String(), s.resource, s.limit.String(), then)
}
