// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"container/list"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waiter is a ShadowPod without a pod. It stands in line for room, or was called because there is room, or is being looked at,
// or waits for something else.
type waiter struct {
	peer    string
	request string
	line    *line         // in which it stands, or from which it was called; nil for none
	place   *list.Element // in the line, nil if it was called
}

// waitingRoom has the ShadowPods of one peer that wait for room. A freed place calls no more of them than have room there
// together: if all were looked at for each place, the policies would be asked about all of them each time.
type waitingRoom struct {
	limits corev1.ResourceList // as the last one that got in line found them
	lines  map[string]*line    // Request and what pods ask for → who waits for that
	called corev1.ResourceList // what those ask for that were called and have not been looked at since
}

// line is of those whose pods ask for the same, for the same Request: a place is compared with each line, and not with each ShadowPod.
type line struct {
	request string // that they name
	demand  corev1.ResourceList
	members list.List // names of ShadowPods, who came first is first
}

// standInLine has the ShadowPod called when there is room for its demand.
func (l *ledger) standInLine(who claimant, demand, limits corev1.ResourceList) {
	room := l.rooms[who.peer]
	if room == nil {
		room = &waitingRoom{lines: map[string]*line{}}
		l.rooms[who.peer] = room
	}
	room.limits = limits
	key := who.request + " " + keyOf(demand)
	at := room.lines[key]
	if at == nil {
		at = &line{request: who.request, demand: demand}
		room.lines[key] = at
	}
	l.waiting[who.NamespacedName] = &waiter{
		peer: who.peer, request: who.request, line: at, place: at.members.PushBack(who.NamespacedName),
	}
}

func keyOf(demand corev1.ResourceList) string {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		amount := demand[name]
		fmt.Fprintf(&key, "%s=%s ", name, amount.String())
	}
	return key.String()
}

// stepOut takes the ShadowPod out of its line, or ends that it was called.
func (l *ledger) stepOut(name types.NamespacedName) {
	w := l.waiting[name]
	if w == nil || w.line == nil {
		return
	}
	if w.place != nil {
		w.line.members.Remove(w.place)
	} else if room := l.rooms[w.peer]; room != nil {
		room.called = quota.RemoveZeros(quota.Subtract(room.called, w.line.demand))
	}
	w.line, w.place = nil, nil
}

// forget takes the ShadowPod off those that wait. It returns nil if it was none of them.
func (l *ledger) forget(name types.NamespacedName) *waiter {
	l.stepOut(name)
	w := l.waiting[name]
	delete(l.waiting, name)
	return w
}

// looked says that the look at the ShadowPod has ended. Room that it was called for and has not taken is others'.
func (l *ledger) looked(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waiting[name]; w != nil && w.place == nil {
		l.stepOut(name)
		l.call(w.peer)
	}
}

// call wakes as many of each line as have room together, also with those that were called before.
func (l *ledger) call(peer string) {
	room := l.rooms[peer]
	if room == nil {
		return
	}
	var requests []reconcile.Request
	taken := quota.Add(l.used[peer], room.called)
	for key, line := range room.lines {
		reserved := l.reservedBeside(peer, line.request, line.demand)
		for line.members.Len() > 0 && fits(line.demand, quota.Add(taken, reserved), room.limits) {
			name := line.members.Remove(line.members.Front()).(types.NamespacedName) //nolint:forcetypeassert // there is nothing else
			l.waiting[name].place = nil
			room.called, taken = quota.Add(room.called, line.demand), quota.Add(taken, line.demand)
			requests = append(requests, reconcile.Request{NamespacedName: name})
		}
		if line.members.Len() == 0 {
			delete(room.lines, key)
		}
	}
	if len(room.lines)+len(room.called) == 0 {
		delete(l.rooms, peer)
	}
	l.wake(requests)
}

// fits says whether the limits leave room for the demand beside what is taken.
func fits(demand, taken, limits corev1.ResourceList) bool {
	_, is := beyond(limits, demand, taken)
	return !is
}
