// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var evening = time.Date(2026, 11, 26, 23, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return evening.Add(d) }

var lubeckR = RequestKey{"lubeck", "r"}

// metering has a meter count for peer lubeck from the evening on.
func metering() *Meter {
	m := NewMeter()
	m.Open("lubeck", func() time.Time { return evening })
	return m
}

func (m *Meter) starts(name, request, cpu string, at time.Time) {
	m.Hold(&MeteredPod{
		NamespacedName: types.NamespacedName{Namespace: "twin", Name: name}, Peer: "lubeck", Request: request, Started: at,
		Holds: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("512Mi")},
	}, at)
}

func (m *Meter) ends(name string, at time.Time) {
	m.Release(types.NamespacedName{Namespace: "twin", Name: name}, at)
}

// counted counts until then, and returns what was used on each day, in words.
func (m *Meter) counted(t *testing.T, until time.Time, prices *v1alpha1.Prices) []string {
	t.Helper()
	var all []string
	for _, tally := range m.Tally("lubeck", until, prices) {
		count := &v1alpha1.AccountCount{}
		if err := tally.AddTo(count); err != nil {
			t.Fatal(err)
		}
		for _, e := range count.Entries {
			all = append(all, fmt.Sprintf("%s %s: used %s %s, reserved %s, cost %s %s", tally.Day.Format("02"), e.Application,
				e.Used["cpu"], e.Used["memory"], e.Reserved["cpu"], e.Cost, e.Currency))
		}
	}
	m.Commit("lubeck", until)
	return all
}

func TestMeter(t *testing.T) {
	euros := &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.1")}}
	shop := &MeteredReservation{
		Application: "shop/web", Reserved: corev1.ResourceList{"cpu": resource.MustParse("4")},
		Price: &v1alpha1.Price{Amount: resource.MustParse("0.2"), Currency: "EUR"},
	}
	for name, test := range map[string]struct {
		run  func(*Meter)
		want []string
	}{
		"nothing": {func(*Meter) {}, nil},
		"a pod that runs on": {
			func(m *Meter) { m.starts("web", "", "2", evening) },
			[]string{"26 : used 1 0.25, reserved , cost 0.1 EUR"},
		},
		"a pod that began before": {
			func(m *Meter) { m.starts("web", "", "2", after(-time.Hour)) },
			[]string{"26 : used 1 0.25, reserved , cost 0.1 EUR"},
		},
		"a pod that came and went": {
			func(m *Meter) {
				m.starts("web", "", "2", after(10*time.Minute))
				m.ends("web", after(16*time.Minute))
			},
			[]string{"26 : used 0.2 0.05, reserved , cost 0.02 EUR"},
		},
		"a pod that grows": {
			func(m *Meter) {
				m.starts("web", "", "1", evening)
				m.starts("web", "", "3", after(15*time.Minute))
			},
			[]string{"26 : used 1 0.25, reserved , cost 0.1 EUR"},
		},
		"what comes later is counted later": {
			func(m *Meter) { m.starts("web", "", "1", after(30*time.Minute)) }, nil,
		},
		"a reservation that nobody uses": {
			func(m *Meter) { m.Reserve(lubeckR, shop, evening, evening) },
			[]string{"26 shop/web: used  , reserved 2, cost 0.1 EUR"},
		},
		"one that is used in part, and then beyond": {
			func(m *Meter) {
				m.Reserve(lubeckR, shop, evening, evening)
				m.starts("web", "r", "3", evening)
				m.starts("more", "r", "3", after(15*time.Minute))
			},
			[]string{"26 shop/web: used 2.25 0.375, reserved 2, cost 0.15 EUR"},
		},
		"one that ends before its pod": {
			func(m *Meter) {
				m.Reserve(lubeckR, shop, evening, evening)
				m.starts("web", "r", "3", evening)
				m.Reserve(lubeckR, nil, evening, after(15*time.Minute))
			},
			[]string{"26 : used 0.75 0.125, reserved , cost 0.075 EUR", "26 shop/web: used 0.75 0.125, reserved 1, cost 0.05 EUR"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := metering()
			test.run(m)
			if diff := cmp.Diff(test.want, m.counted(t, after(30*time.Minute), euros)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAMeterCountsEachMomentOnce(t *testing.T) {
	m := metering()
	m.starts("web", "", "1", evening)
	want := [][]string{
		{"26 : used 0.5 0.25, reserved , cost  "},
		{"26 : used 0.5 0.25, reserved , cost  ", "27 : used 0.5 0.25, reserved , cost  "}, // over midnight
		{"27 : used 0.25 0.125, reserved , cost  "},
		nil,
	}
	for i, until := range []time.Duration{30, 90, 120, 150} {
		switch i {
		case 2:
			m.ends("web", after(105*time.Minute))
		case 3:
			if m.Counts("lubeck") {
				t.Error("it counts for nobody")
			}
		}
		if diff := cmp.Diff(want[i], m.counted(t, after(until*time.Minute), nil)); diff != "" {
			t.Errorf("%d: -want +got:\n%s", i, diff)
		}
	}
}

func TestWhatWasCountedDoesNotChange(t *testing.T) {
	m := metering()
	m.counted(t, after(time.Hour), nil)
	m.starts("late", "", "1", evening)
	if got := m.counted(t, after(2*time.Hour), nil); cmp.Diff([]string{"27 : used 1 0.5, reserved , cost  "}, got) != "" {
		t.Errorf("got %q", got)
	}
	m.ends("late", evening)
	if got := m.counted(t, after(3*time.Hour), nil); got != nil {
		t.Errorf("got %q", got)
	}
}

func TestATallyThatWasNotStoredIsCountedAgain(t *testing.T) {
	m := metering()
	m.starts("web", "", "1", evening)
	m.Tally("lubeck", after(time.Hour), nil)
	if got := m.counted(t, after(time.Hour), nil); cmp.Diff([]string{"26 : used 1 0.5, reserved , cost  "}, got) != "" {
		t.Errorf("got %q", got)
	}
}

// A burst of pods is counted in one pass.
func BenchmarkMeter(b *testing.B) {
	for b.Loop() {
		m := metering()
		for i := range 10_000 {
			m.starts(fmt.Sprint("pod-", i), "", "1", after(time.Duration(i%300)*time.Second))
		}
		m.Tally("lubeck", after(5*time.Minute), nil)
		m.Commit("lubeck", after(5*time.Minute))
	}
}

// A tick in which nothing has changed is cheap, however many pods and peers there are.
func BenchmarkMeterTick(b *testing.B) {
	m, now := NewMeter(), evening
	for i := range 10_000 {
		peer := fmt.Sprint("peer-", i%1000)
		m.Open(peer, func() time.Time { return evening })
		m.Hold(&MeteredPod{
			NamespacedName: types.NamespacedName{Name: fmt.Sprint("pod-", i)}, Peer: peer, Started: evening,
			Holds: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("1")},
		}, evening)
	}
	for b.Loop() {
		now = now.Add(5 * time.Minute)
		for i := range 1000 {
			peer := fmt.Sprint("peer-", i)
			m.Tally(peer, now, nil)
			m.Commit(peer, now)
		}
	}
}
