// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestTwinsShareTheRoomOfTheirPeer(t *testing.T) {
	const room = 32 << 20
	many := func(number, step int) []int {
		all := make([]int, number)
		for i := range all {
			all[i] = step
		}
		return all
	}
	for name, test := range map[string]struct {
		all  []int // steps of all twins, that of the first is wanted
		want int
	}{
		"one that is empty":          {all: []int{0}, want: room / 2},
		"one with all":               {all: []int{64}, want: room},
		"one with ever so many":      {all: []int{16384}, want: room},
		"two alike":                  {all: []int{64, 64}, want: room / 2},
		"three alike":                {all: []int{64, 64, 64}, want: room / 4},
		"one with all among many":    {all: append([]int{1024}, many(99, 0)...), want: room/2 + room/256},
		"an empty one among many":    {all: append([]int{0}, many(99, 64)...), want: room / 256},
		"one with most of them":      {all: []int{1024, 512, 64}, want: room/8 + room/4},
		"a peer with many that have": {all: many(100, 64), want: room / 256 * 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := share(room, test.all[0], test.all); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
			sum := 0
			for _, step := range test.all {
				sum += share(room, step, test.all)
			}
			if sum > room {
				t.Errorf("all together have %d bytes, which is more than %d", sum, room)
			}
		})
	}
}

func TestOccupancyGoesInSteps(t *testing.T) {
	var c occupancy
	for _, move := range []struct {
		to, step int
	}{{32, 0}, {33, 64}, {64, 64}, {65, 128}, {200, 256}, {65, 256}, {64, 256}, {63, 64}, {16, 64}, {15, 0}, {0, 0}} {
		now := c.twins["twin"].count
		before, stepped := c.step("twin"), false
		for ; now != move.to; now = c.twins["twin"].count {
			by := 1
			if move.to < now {
				by = -1
			}
			stepped = c.change("twin", by) || stepped
		}
		if got := c.step("twin"); got != move.step || stepped != (before != got) {
			t.Errorf("with %d: step %d, want %d, told: %v", now, got, move.step, stepped)
		}
	}
	if len(c.twins) > 0 {
		t.Errorf("kept %v", c.twins)
	}
}

// A twin in which a peer has its pods gets room from those in which it has none.
func TestRoomGoesToWhereTheShadowPodsAre(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"), mappingOf("empty"))
	w.change(func(spec *v1alpha1.PeerSpec) { spec.Limits = &v1alpha1.PeerLimits{Mebibytes: ptr.To[int32](8)} })
	m := mapperIn(w)
	expect := func(shop, other string) {
		t.Helper()
		for home, want := range map[string]string{"shop": shop, "empty": other} {
			w.Reconcile(m, "hanse-peer-lubeck", home)
			twin := testkit.Get[corev1.Namespace](w.Home, "", TwinName("lubeck", home))
			if got := twin.Labels[v1alpha1.LabelRoom]; got != want {
				t.Errorf("%s has room for %s bytes, want %s", home, got, want)
			}
		}
	}
	expect("2097152", "2097152")
	requests := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer requests.ShutDown()
	counter := m.shadowsCounted()
	for i := range 40 {
		counter.Create(t.Context(), event.CreateEvent{Object: asking(fmt.Sprint(i), "1")}, requests)
	}
	if looks := requests.Len(); looks != 2 {
		t.Errorf("looks at %d mappings, want 2", looks)
	}
	expect("6291456", "2097152")
	for i := range 40 {
		counter.Delete(t.Context(), event.DeleteEvent{Object: asking(fmt.Sprint(i), "1")}, requests)
	}
	expect("2097152", "2097152")
}

// Most new twins leave the parts of the others as they are.
func TestFewNewTwinsDivideTheRoomAnew(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	for number, want := range []int{1, 2, 3, 4, 5, 0, 0, 8, 9} {
		another := mappingOf(fmt.Sprintf("more-%d", number))
		if number > 0 {
			w.Home.Put(another)
		}
		if looks := m.mappingsDivided(t.Context(), another); len(looks) != want {
			t.Errorf("with %d others %d are looked at, want %d", number, len(looks), want)
		}
	}
}
