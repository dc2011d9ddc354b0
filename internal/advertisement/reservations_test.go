// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestWhatIsReservedIsNotOfferedToOthers(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.second("kiel", nil)
	w.node("a", "4")
	offeredTo := func(peer string) string {
		t.Helper()
		w.Clock.Step(2 * time.Second)
		cpu := w.publish(peer).Spec.Availability[corev1.ResourceCPU]
		return cpu.String()
	}
	if missing := w.publisher.Reserve("kiel", "shop", testkit.Quantities("cpu", "3")); missing != nil {
		t.Fatalf("missing is %+v", missing)
	}
	w.expect("1", offeredTo("hamburg"))
	w.expect("4", offeredTo("kiel"))
	if missing := w.publisher.Reserve("hamburg", "shop", testkit.Quantities("cpu", "2")); missing == nil {
		t.Error("what is reserved is sold again")
	}
	w.publisher.Claim("kiel", exchange.Claim{
		All: testkit.Quantities("cpu", "2"), Request: "shop", Taken: testkit.Quantities("cpu", "2"),
	})
	w.expect("1", offeredTo("hamburg")) // until the pods are on a node
	w.publisher.SetReserved("kiel", "shop", nil)
	w.expect("4", offeredTo("hamburg"))
}

// What was acknowledged before a restart is locked before anything is asked. After that the status of a Request is late.
func TestReservationsOutliveARestart(t *testing.T) {
	w := newWorld(t)
	w.node("a", "4")
	request := func(name string, phase v1alpha1.RequestPhase, cpu string) *v1alpha1.Request {
		return &v1alpha1.Request{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("kiel"), Name: name},
			Status:     v1alpha1.RequestStatus{Phase: phase, Reserved: testkit.Quantities("cpu", cpu)},
		}
	}
	c := w.publisher.capacity
	c.take(request("shop", v1alpha1.RequestAcknowledged, "3"), false)
	c.take(request("stock", v1alpha1.RequestExpired, "1"), false)
	c.take(request("gone", v1alpha1.RequestAcknowledged, "1"), false)
	c.take(request("gone", v1alpha1.RequestAcknowledged, "1"), true)
	if missing := w.publisher.Reserve("hamburg", "shop", testkit.Quantities("cpu", "1")); missing != nil {
		t.Errorf("missing is %+v", missing)
	}
	if missing := w.publisher.Reserve("hamburg", "shop", testkit.Quantities("cpu", "1001m")); missing == nil {
		t.Error("what was acknowledged is sold again")
	}
	if err := c.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.publisher.SetReserved("kiel", "shop", testkit.Quantities("cpu", "1"))
	c.take(request("shop", v1alpha1.RequestAcknowledged, "3"), false)
	if missing := w.publisher.Reserve("hamburg", "shop", testkit.Quantities("cpu", "3")); missing != nil {
		t.Errorf("a late status counts: missing is %+v", missing)
	}
}
