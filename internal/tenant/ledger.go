// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// claimant is a ShadowPod that needs a pod, the peer whose it is, and the Request of the peer that it names, if any.
type claimant struct {
	types.NamespacedName
	uid     types.UID
	peer    string
	request string
}

// ledger says how much the pods of each peer ask for, in all its twins together. A ShadowPod has an account there from
// the moment in which it gets room for its pod, which is before the pod exists, until it needs no pod any more. So pods
// that the cache does not show yet count, a pod that is made again keeps its place, and none counts twice.
//
// It decides, in one place, whether a pod may come in and whether a Request is acknowledged: within the limits of the peer, and
// without taking what others are promised.
type ledger struct {
	wake func([]reconcile.Request) // has those looked at again that may have room now
	room Room
	uses func(requestKey) // is told that the pods of a Request ask for more or less

	mu       sync.Mutex
	accounts map[types.NamespacedName]account
	used     map[string]corev1.ResourceList     // peer → sum of its accounts
	taken    map[requestKey]corev1.ResourceList // Request → sum of the accounts that name it
	waiting  map[types.NamespacedName]*waiter   // ShadowPods without a pod
	rooms    map[string]*waitingRoom            // peer → those of them that wait for room
}

// A Room knows what this cluster has for the pods of peers, and what of that is guaranteed to whom, or reserved for which Request.
// Its methods but the last are those of exchange.Ledger.
type Room interface { //nolint:interfacebloat // all of it is one ledger, under one lock
	Claim(peer string, claim exchange.Claim)
	Short(peer, request string, more corev1.ResourceList) (corev1.ResourceName, bool)
	Reserve(peer, request string, all corev1.ResourceList) *exchange.Missing
	SetReserved(peer, request string, all corev1.ResourceList)
	Reservable(peer, request string, these corev1.ResourceList) corev1.ResourceList
	Untaken(peer, request string) (own, others corev1.ResourceList)
	// WaitForRoom returns when it is known what there is, and what of it is promised to whom.
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
		uses:     func(requestKey) {},
		taken:    map[requestKey]corev1.ResourceList{},
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
	l.waiting[who.NamespacedName] = &waiter{peer: who.peer, request: who.request}
}

// reserve gives the ShadowPod room for its pod if the limits, and what others are promised, leave it. If they do not, the
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
		l.waiting[who.NamespacedName] = &waiter{peer: who.peer, request: who.request}
	}
	l.call(who.peer) // it may take less than it was called for
	return short
}

// change gives the ShadowPod, whose pod exists, room for what it is about to ask for if the limits, and what others are
// promised, leave it. If they do not, it keeps what it has, and change returns what is short. What it will need no more is
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

// short returns the first limit, by name, that the demand would exceed, or else what it would take of what others are promised.
// What the ShadowPod has already does not stand against it, and what is not asked for cannot be short. What is reserved counts
// as used, so that a limit cannot stand against the pods that it is reserved for.
func (l *ledger) short(who claimant, demand, limits corev1.ResourceList) *shortage {
	has := l.accounts[who.NamespacedName].demand
	more := quota.SubtractWithNonNegativeResult(demand, has)
	taken := quota.Add(quota.Subtract(l.used[who.peer], has), l.reservedBeside(who.peer, who.request, more))
	if name, is := beyond(limits, demand, taken); is {
		return &shortage{reason: v1alpha1.ReasonLimitExceeded, resource: name, limit: limits[name], asked: demand[name]}
	}
	if name, is := l.room.Short(who.peer, who.request, more); is {
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
	l.book(old.claimant, quota.Subtract, old.demand)
	var demand corev1.ResourceList
	if next != nil {
		demand = next.demand
		l.accounts[name] = *next
		l.book(next.claimant, quota.Add, demand)
	}
	if had && (next == nil || len(grown(old.demand, demand)) > 0) {
		l.call(old.peer)
	}
}

func (l *ledger) book(who claimant, by adding, demand corev1.ResourceList) {
	if who.peer == "" {
		return
	}
	addTo(l.used, who.peer, by, demand)
	claim := exchange.Claim{All: l.used[who.peer], Request: who.request}
	if key := (requestKey{who.peer, who.request}); who.request != "" {
		addTo(l.taken, key, by, demand)
		claim.Taken = l.taken[key]
		l.uses(key)
	}
	l.room.Claim(who.peer, claim)
}

// adding adds two lists, or subtracts the second one.
type adding func(a, b corev1.ResourceList) corev1.ResourceList

func addTo[K comparable](sums map[K]corev1.ResourceList, of K, by adding, demand corev1.ResourceList) {
	sums[of] = quota.RemoveZeros(by(sums[of], demand))
	if len(sums[of]) == 0 {
		delete(sums, of)
	}
}

// shortage is what stands against a pod: a limit, or what others are promised, of which its peer learns nothing.
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
