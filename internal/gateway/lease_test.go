// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/internal/testkit"
)

func newLease(w *testkit.World, self string) *lease {
	return &lease{
		client: w.Home.Client, namespace: "hanse-system-network", self: self,
		duration: 1500 * time.Millisecond, renewal: 400 * time.Millisecond, clock: w.Clock,
	}
}

// steps has the gateways look at the lease for that long, in this order.
func steps(w *testkit.World, length time.Duration, all ...*lease) {
	for end := w.Clock.Now().Add(length); w.Clock.Now().Before(end); w.Clock.Step(look) {
		for _, l := range all {
			_ = l.step(w.Context())
		}
	}
}

func expectActive(w *testkit.World, what string, want map[*lease]bool) {
	w.Helper()
	for l, active := range want {
		if l.held.Load() != active {
			w.Errorf("%s, gateway %q believes that it is active: %t", what, l.self, l.held.Load())
		}
	}
}

func TestOneGatewayIsActive(t *testing.T) {
	w := testkit.NewWorld(t)
	one, other := newLease(w, "one"), newLease(w, "other")
	steps(w, 10*time.Second, one, other)
	expectActive(w, "at first", map[*lease]bool{one: true, other: false})

	if err := one.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	steps(w, look, other)
	expectActive(w, "after the first one has ended in good order", map[*lease]bool{one: false, other: true})

	steps(w, 2*time.Second, one)
	expectActive(w, "after the second one has died", map[*lease]bool{one: true, other: true})
	steps(w, look, other)
	expectActive(w, "when that one comes to itself again", map[*lease]bool{one: true, other: false})
}

func TestAGatewayThatStartsAnewInItsPodNeedNotWait(t *testing.T) {
	w := testkit.NewWorld(t)
	steps(w, time.Second, newLease(w, "one"))
	again, other := newLease(w, "one"), newLease(w, "other")
	steps(w, look, other, again)
	expectActive(w, "after a restart", map[*lease]bool{again: true, other: false})
}

func TestTheActiveGatewayOutlivesTheAPIServer(t *testing.T) {
	w := testkit.NewWorld(t)
	one, other := newLease(w, "one"), newLease(w, "other")
	steps(w, time.Second, one, other)
	away := true
	w.Home.Before(func(testkit.Write) error {
		if away {
			return errors.New("the API server is away")
		}
		return nil
	})
	steps(w, time.Minute, one, other)
	expectActive(w, "while nothing can be written", map[*lease]bool{one: true, other: false})
	away = false
	steps(w, time.Second, one, other)
	expectActive(w, "afterwards", map[*lease]bool{one: true, other: false})
}

// The clocks of nodes differ, so what the lease says of the time is compared with nothing.
func TestALeaseFromTheFutureEndsToo(t *testing.T) {
	w := testkit.NewWorld(t)
	one := newLease(w, "one")
	steps(w, look, one)
	l := testkit.Get[coordinationv1.Lease](w.Home, "hanse-system-network", "hanse-gateway")
	testkit.Change(w.Home, l.Namespace, l.Name, func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity, l.Spec.RenewTime.Time = ptr.To("gone"), w.Clock.Now().Add(time.Hour)
	})
	other := newLease(w, "other")
	steps(w, time.Second, other)
	expectActive(w, "before the lease has ended", map[*lease]bool{one: true, other: false})
	steps(w, time.Second, other)
	expectActive(w, "when it has", map[*lease]bool{one: true, other: true})
}
