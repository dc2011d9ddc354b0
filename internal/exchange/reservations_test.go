// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func cores(milli int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
}

// trade is what a ledger is told, written down in the plainest way.
type trade struct {
	ledger     *Ledger
	total      int64
	guarantees map[string]int64
	reserved   map[[2]string]int64 // peer, Request
	pods       map[string]marketPod
}

type marketPod struct {
	peer, request string
	cpu           int64
}

// claims enters what the pods of the peer and the Request ask for.
func (m *trade) claims(peer, request string) {
	claim, all, taken := Claim{Request: request}, int64(0), int64(0)
	for _, pod := range m.pods {
		if pod.peer == peer {
			all += pod.cpu
		}
		if pod.peer == peer && pod.request == request {
			taken += pod.cpu
		}
	}
	claim.All, claim.Taken = cores(all), cores(taken)
	m.ledger.Claim(peer, claim)
}

// promised is what pods hold, and what is kept for those that do not exist yet.
func (m *trade) promised() int64 {
	sum, perPeer, perRequest := int64(0), map[string]int64{}, map[[2]string]int64{}
	for _, pod := range m.pods {
		sum += pod.cpu
		perPeer[pod.peer] += pod.cpu
		perRequest[[2]string{pod.peer, pod.request}] += pod.cpu
	}
	for _, peer := range []string{"kiel", "lubeck", "riga"} {
		untaken := int64(0)
		for key, reserved := range m.reserved {
			if key[0] == peer {
				untaken += max(0, reserved-perRequest[key])
			}
		}
		sum += max(m.guarantees[peer]-perPeer[peer], untaken)
	}
	return sum
}

// Pods, reservations and guarantees of peers never come to more than there is. Nobody is refused what is there, and whoever has a
// reservation gets it.
func TestPromisesNeverExceedWhatThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &trade{
			ledger: NewLedger(), total: 4000, reserved: map[[2]string]int64{}, pods: map[string]marketPod{},
			// Where nothing at all is promised to others, pods may wait for more than there is.
			guarantees: map[string]int64{"riga": 1, "kiel": rapid.Int64Range(1, 2000).Draw(t, "guarantee"), "lubeck": 1},
		}
		m.ledger.SetNode(node("a", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("100") }))
		for peer, guarantee := range m.guarantees {
			m.ledger.Guarantee(peer, cores(guarantee))
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			m.step(t, i)
			if promised := m.promised(); promised > m.total {
				t.Fatalf("%dm of %dm are promised", promised, m.total)
			}
			checkShares(t, m.ledger)
		}
	})
}

func (m *trade) step(t *rapid.T, i int) {
	peer := rapid.SampledFrom([]string{"kiel", "lubeck"}).Draw(t, "peer")
	request := rapid.SampledFrom([]string{"shop", "stock"}).Draw(t, "request")
	cpu := rapid.Int64Range(1, 2500).Draw(t, "cpu")
	switch rapid.IntRange(0, 4).Draw(t, "step") {
	case 0:
		m.reserve(t, [2]string{peer, request}, cpu)
	case 1:
		delete(m.reserved, [2]string{peer, request})
		m.ledger.SetReserved(peer, request, nil)
	case 2:
		m.admit(t, i, marketPod{peer, request, cpu})
	case 3:
		m.admit(t, i, marketPod{peer, "", cpu})
	default:
		for _, name := range slices.Sorted(maps.Keys(m.pods)) {
			pod := m.pods[name]
			delete(m.pods, name)
			m.bind(name, pod, corev1.PodSucceeded)
			m.claims(pod.peer, pod.request)
			return
		}
	}
}

// reserve asks for a reservation, and expects it if there is room, or if nothing more is asked for than is locked already.
func (m *trade) reserve(t *rapid.T, key [2]string, cpu int64) {
	before, had := m.reserved[key]
	taken := int64(0)
	for _, pod := range m.pods {
		if pod.peer == key[0] && pod.request == key[1] {
			taken += pod.cpu
		}
	}
	m.reserved[key] = cpu
	fits := m.promised() <= m.total || cpu <= max(before, taken)
	missing := m.ledger.Reserve(key[0], key[1], cores(cpu), nil)
	if (missing == nil) != fits {
		t.Fatalf("%v asks for %dm, which fits: %t. Missing: %+v", key, cpu, fits, missing)
	}
	switch {
	case fits:
	case had:
		m.reserved[key] = before
	default:
		delete(m.reserved, key)
	}
}

func (m *trade) admit(t *rapid.T, i int, pod marketPod) {
	name := fmt.Sprint("pod-", i)
	m.pods[name] = pod
	fits := m.promised() <= m.total
	if _, short := m.ledger.Short(pod.peer, pod.request, cores(pod.cpu), nil); short == fits {
		t.Fatalf("%+v fits: %t, and is short: %t", pod, fits, short)
	}
	if !fits {
		delete(m.pods, name)
		return
	}
	m.claims(pod.peer, pod.request)
	if rapid.Bool().Draw(t, "bound") {
		m.bind(name, pod, corev1.PodRunning)
	}
}

func (m *trade) bind(name string, pod marketPod, phase corev1.PodPhase) {
	m.ledger.SetPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "twin-" + pod.peer, Name: name},
		Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: cores(pod.cpu)},
		}}},
		Status: corev1.PodStatus{Phase: phase},
	}, pod.peer)
}

func TestReservationsAreForTheirPods(t *testing.T) {
	for name, test := range map[string]struct {
		guarantee int64 // of lubeck
		taken     int64 // by pods of lubeck's Request
		peer      string
		request   string
		asks      int64
		short     bool
	}{
		"another peer gets what is left":                     {peer: "kiel", asks: 1000},
		"and no more":                                        {peer: "kiel", asks: 1001, short: true},
		"a pod of the Request gets what is reserved":         {peer: "lubeck", request: "shop", asks: 3000},
		"and what is left":                                   {peer: "lubeck", request: "shop", asks: 4000},
		"a pod of the same peer without the Request":         {peer: "lubeck", asks: 1001, short: true},
		"a pod of the same peer of another Request":          {peer: "lubeck", request: "stock", asks: 1001, short: true},
		"what is taken is not locked twice":                  {peer: "kiel", taken: 3000, asks: 1000},
		"and others do not get it":                           {peer: "kiel", taken: 3000, asks: 1001, short: true},
		"a guarantee and a reservation overlap":              {guarantee: 3000, peer: "kiel", asks: 1000},
		"the larger one counts":                              {guarantee: 3500, peer: "kiel", asks: 501, short: true},
		"of the guarantee other pods get what is left of it": {guarantee: 3500, peer: "lubeck", asks: 1000},
		"the same name of another peer is another Request":   {peer: "kiel", request: "shop", asks: 1001, short: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger()
			l.SetNode(node("a")) // of 4 cores
			if missing := l.Reserve("lubeck", "shop", cores(3000), nil); missing != nil {
				t.Fatal(missing)
			}
			l.Guarantee("lubeck", cores(test.guarantee))
			l.Claim("lubeck", Claim{All: cores(test.taken), Request: "shop", Taken: cores(test.taken)})
			if _, short := l.Short(test.peer, test.request, cores(test.asks), nil); short != test.short {
				t.Errorf("short: %t", short)
			}
		})
	}
}

// What members have reserved through a broker counts beside what others reserve through it, whatever peers they are to become.
func TestReservedThroughABroker(t *testing.T) {
	l := NewLedger()
	set := func(broker, member string, cpu int64) {
		of, called := ReservationOf(broker, member+".shop", member)
		l.SetReserved(of, called, cores(cpu))
	}
	expect := func(broker, member string, own, others int64) {
		t.Helper()
		of, called := ReservationOf(broker, member+".shop", member)
		has, beside := l.Untaken(of, called)
		if has.Cpu().MilliValue() != own || beside.Cpu().MilliValue() != others {
			t.Errorf("%s through %s: %s, others %s, want %d, %d", member, broker, has.Cpu(), beside.Cpu(), own, others)
		}
	}
	l.SetReserved("hub", "shop", cores(1000)) // by the broker itself, as a consumer
	set("hub", "kiel", 100)
	set("hub", "riga", 20)
	set("other", "riga", 3)
	expect("hub", "kiel", 100, 20)
	expect("hub", "riga", 20, 100)
	expect("hub", "new", 0, 120)
	expect("other", "kiel", 0, 3)
	set("hub", "kiel", 50)
	expect("hub", "riga", 20, 50)
	set("hub", "kiel", 0)
	set("hub", "riga", 0)
	expect("hub", "kiel", 0, 0)
	if own, others := l.Untaken("hub", "shop"); own.Cpu().MilliValue() != 1000 || !others.Cpu().IsZero() {
		t.Errorf("the broker itself: %s, others %s", own.Cpu(), others.Cpu())
	}
	if len(l.relayed["hub"]) > 0 {
		t.Errorf("%v is kept of what is gone", l.relayed)
	}
}

func TestRefusalSaysWhatIsMissing(t *testing.T) {
	l := NewLedger()
	l.SetNode(node("a"))
	l.Guarantee("kiel", cores(1000))
	missing := l.Reserve("lubeck", "shop", cores(3500), cores(500))
	if diff := cmp.Diff(&Missing{corev1.ResourceCPU, cores(1000)[corev1.ResourceCPU]}, missing); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if missing := l.Reserve("lubeck", "shop", corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}, nil); missing == nil {
		t.Error("what there is nothing of is reserved")
	}
}

// What others are offered lacks what is reserved until pods are on nodes, and no longer.
func TestReservedIsMissingUntilPodsAreOnNodes(t *testing.T) {
	l := NewLedger()
	l.SetNode(node("a"))
	expect := func(what string, want int64) {
		t.Helper()
		amount := l.Reserved()["lubeck"][corev1.ResourceCPU]
		if got := amount.MilliValue(); got != want {
			t.Errorf("%s: %dm, want %dm", what, got, want)
		}
	}
	l.Reserve("lubeck", "shop", cores(3000), nil)
	expect("nothing runs", 3000)
	l.Claim("lubeck", Claim{All: cores(1000), Request: "shop", Taken: cores(1000)})
	expect("a pod was let in", 3000)
	m := &trade{ledger: l}
	m.bind("web", marketPod{"lubeck", "shop", 1000}, corev1.PodRunning)
	expect("it is on a node", 2000)
	l.SetReserved("lubeck", "shop", nil)
	expect("the reservation has ended", 0)
}
