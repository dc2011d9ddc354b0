// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// requestKey names a Request of a peer, as the ledger does.
type requestKey struct{ peer, name string }

func requestKeyOf(name types.NamespacedName) requestKey {
	return requestKey{strings.TrimPrefix(name.Namespace, v1alpha1.TenantNamespacePrefix), name.Name}
}

// reservationOf names a Request, or what is asked for by a Quote.
func reservationOf(asked client.Object) requestKey {
	lies := requestKeyOf(client.ObjectKeyFromObject(asked))
	peer, name := exchange.ReservationOf(lies.peer, lies.name, asked.GetLabels()[v1alpha1.LabelFrom])
	return requestKey{peer, name}
}

// relayedTo names what the member of that id asks for by a Request in the tenant namespace of the broker.
func relayedTo(lies requestKey, from string) requestKey {
	peer, name := exchange.ReservationOf(lies.peer, lies.name, from)
	return requestKey{peer, name}
}

func (k requestKey) namespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: v1alpha1.TenantNamespace(k.peer), Name: k.name}
}

// acknowledge reserves what the Request demands, and at least what its status says, if the limits and what others are promised leave
// it. If not, all stays as it was, and acknowledge says what stands against it. What the Request has already does not.
func (l *ledger) acknowledge(of requestKey, demand, told, limits corev1.ResourceList) *refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reserveFor(of, demand, told, limits)
}

// acknowledgeInPlaceOf acknowledges as acknowledge does, in the room of the other Request too, which then has none: a member has asked for the
// same by that before it became the peer.
func (l *ledger) acknowledgeInPlaceOf(other, of requestKey, demand, told, limits corev1.ResourceList) *refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, _ := l.room.Untaken(other.peer, other.name)
	l.room.SetReserved(other.peer, other.name, nil)
	left := l.reserveFor(of, demand, told, limits)
	if left != nil {
		l.room.SetReserved(other.peer, other.name, held)
	}
	return left
}

func (l *ledger) reserveFor(of requestKey, demand, told, limits corev1.ResourceList) *refusal {
	own, others := l.room.Untaken(of.peer, of.name)
	lacks := quota.SubtractWithNonNegativeResult(demand, quota.Mask(l.taken[of], quota.ResourceNames(demand)))
	more := quota.Mask(lacks, quota.ResourceNames(grown(lacks, own)))
	if name, is := beyond(limits, more, quota.Add(l.used[of.peer], others)); is {
		asked, limit, whose := demand[name], limits[name], "this cluster"
		if exchange.BrokerOf(of.name) != "" {
			whose = "all clusters that ask through this broker"
		}
		return &refusal{reason: v1alpha1.ReasonLimitExceeded, message: fmt.Sprintf(
			"The Request asks for %s of %s, for which the provider's limit of %s for %s has no room: ask for less, or have the limit raised",
			asked.String(), name, limit.String(), whose)}
	}
	if missing := l.room.Reserve(of.peer, of.name, quota.Max(demand, told)); missing != nil {
		asked := demand[missing.Resource]
		return &refusal{reason: v1alpha1.ReasonNoRoom, message: fmt.Sprintf(
			"The Request asks for %s of %s, and the provider has %s too little of it free for this cluster: ask for less, or again later",
			asked.String(), missing.Resource, missing.Amount.String())}
	}
	l.wake(l.waitersOf(of))
	return nil
}

// free is how much of what is demanded a Request of that name could have reserved now.
func (l *ledger) free(of requestKey, demand, limits corev1.ResourceList) corev1.ResourceList {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := l.room.Reservable(of.peer, of.name, demand)
	_, others := l.room.Untaken(of.peer, of.name)
	taken := quota.Subtract(quota.Add(l.used[of.peer], others), l.taken[of])
	for name, left := range quota.SubtractWithNonNegativeResult(limits, quota.Mask(taken, quota.ResourceNames(limits))) {
		if left.Cmp(free[name]) < 0 {
			free[name] = left
		}
	}
	return free
}

// reservedBeside is what is reserved for Requests of the peer and not taken, once pods of this one take so much more.
func (l *ledger) reservedBeside(peer, request string, more corev1.ResourceList) corev1.ResourceList {
	own, others := l.room.Untaken(peer, request)
	return quota.Add(others, quota.SubtractWithNonNegativeResult(own, quota.Mask(more, quota.ResourceNames(own))))
}

// beyond returns the first limit, by name, that is exceeded by what is asked for beside what is taken, and whether there is one.
func beyond(limits, asked, taken corev1.ResourceList) (corev1.ResourceName, bool) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		more, total := asked[name], taken[name]
		total.Add(more)
		if !more.IsZero() && total.Cmp(limits[name]) > 0 {
			return name, true
		}
	}
	return "", false
}

// keep has no more reserved for the Request than this, which is nothing when it has ended. Pods that it was for stay.
func (l *ledger) keep(of requestKey, reserved corev1.ResourceList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room.SetReserved(of.peer, of.name, reserved)
	l.call(of.peer)
}

// usedBy returns what the pods that name the Request ask for.
func (l *ledger) usedBy(of requestKey) corev1.ResourceList {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken[of].DeepCopy()
}

// waitersOf returns the ShadowPods that name the Request and wait for room.
func (l *ledger) waitersOf(of requestKey) []reconcile.Request {
	var requests []reconcile.Request
	for name, w := range l.waiting {
		if w.peer == of.peer && w.request == of.name && w.line == nil {
			requests = append(requests, reconcile.Request{NamespacedName: name})
		}
	}
	return requests
}
