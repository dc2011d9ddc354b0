// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// room is a cluster of one node.
type room struct {
	mu     sync.Mutex
	ledger *exchange.Ledger
}

func newRoom(cpu string) *room {
	r := &room{ledger: exchange.NewLedger()}
	r.ledger.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Status: corev1.NodeStatus{
			Allocatable: testkit.Resources(cpu, "64Gi", "500"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	})
	return r
}

func (r *room) Claim(peer string, claim exchange.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.Claim(peer, claim)
}

func (r *room) Short(peer, request string, more corev1.ResourceList) (corev1.ResourceName, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Short(peer, request, more, nil)
}

func (r *room) Reserve(peer, request string, all corev1.ResourceList) *exchange.Missing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Reserve(peer, request, all, nil)
}

func (r *room) SetReserved(peer, request string, all corev1.ResourceList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.SetReserved(peer, request, all)
}

func (r *room) Untaken(peer, request string) (own, others corev1.ResourceList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Untaken(peer, request)
}

func (r *room) Reservable(peer, request string, these corev1.ResourceList) corev1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Reservable(peer, request, these, nil)
}

func (*room) WaitForRoom(context.Context) error { return nil }

func (r *room) guarantee(peer, cpu string) {
	r.ledger.Guarantee(peer, testkit.Quantities("cpu", cpu))
}

// bind has the scheduler bind a pod of the peer.
func (r *room) bind(name, peer, cpu string) {
	r.ledger.SetPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "twin-of-" + peer, Name: name},
		Spec: corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: testkit.Quantities("cpu", cpu)},
		}}},
	}, peer)
}

func of(peer, name string) claimant {
	return claimant{NamespacedName: types.NamespacedName{Namespace: "twin-of-" + peer, Name: name}, uid: types.UID(peer + name), peer: peer}
}

func ledgerIn(r *room) *ledger { return newLedger(r, func([]reconcile.Request) {}) }

// What is promised to one is refused to all others, and limits hold besides.
func TestWhatIsGuaranteedToOneIsRefusedToOthers(t *testing.T) {
	const cluster = "2"
	usesAll := func(r *room, l *ledger) {
		l.reserve(of("kiel", "a"), testkit.Quantities("cpu", "1500m"), nil)
		r.bind("a", "kiel", "1500m")
	}
	for name, test := range map[string]struct {
		kiel    string // is guaranteed
		lubeck  string // is guaranteed
		prepare func(*room, *ledger)
		limit   string // of lubeck
		asked   string // by lubeck
		want    string // reason of the refusal
	}{
		"nothing is guaranteed":                  {asked: "1800m"},
		"more than there is waits for a node":    {asked: "8"},
		"what is left":                           {kiel: "1500m", asked: "500m"},
		"more than is left":                      {kiel: "1500m", asked: "1800m", want: v1alpha1.ReasonNoRoom},
		"a little more than is left":             {kiel: "1500m", asked: "501m", want: v1alpha1.ReasonNoRoom},
		"its own guarantee":                      {lubeck: "1500m", asked: "1800m"},
		"its own beside another's":               {kiel: "500m", lubeck: "1500m", asked: "1500m"},
		"more than its own beside another's":     {kiel: "500m", lubeck: "1500m", asked: "1600m", want: v1alpha1.ReasonNoRoom},
		"its part, where too much is guaranteed": {kiel: "3", lubeck: "3", asked: "1"},
		"more than its part":                     {kiel: "3", lubeck: "3", asked: "1001m", want: v1alpha1.ReasonNoRoom},
		"within a limit, of what is another's":   {kiel: "1500m", limit: "1", asked: "600m", want: v1alpha1.ReasonNoRoom},
		"beyond a limit, of what is nobody's":    {kiel: "500m", limit: "1", asked: "1200m", want: v1alpha1.ReasonLimitExceeded},
		"what the other uses of it is not taken off twice": {kiel: "1500m", asked: "500m", prepare: func(r *room, l *ledger) {
			l.reserve(of("kiel", "a"), testkit.Quantities("cpu", "1"), nil)
			r.bind("a", "kiel", "1")
			l.reserve(of("kiel", "b"), testkit.Quantities("cpu", "300m"), nil)
		}},
		"and the rest of it stays locked": {kiel: "1500m", asked: "600m", want: v1alpha1.ReasonNoRoom, prepare: func(r *room, l *ledger) {
			l.reserve(of("kiel", "a"), testkit.Quantities("cpu", "1"), nil)
			r.bind("a", "kiel", "1")
		}},
		"what is free beside all that the other uses of it":     {kiel: "1500m", asked: "500m", prepare: usesAll},
		"more than that, to get the room of what is made again": {kiel: "1500m", asked: "600m", want: v1alpha1.ReasonNoRoom, prepare: usesAll},
		"its own, though the cluster's own pods use the rest": {kiel: "1500m", lubeck: "500m", asked: "500m", prepare: func(r *room, l *ledger) {
			usesAll(r, l)
			r.bind("local", "", "400m")
		}},
		"what was let in and is not on a node yet": {kiel: "500m", asked: "600m", want: v1alpha1.ReasonNoRoom, prepare: func(_ *room, l *ledger) {
			l.reserve(of("riga", "a"), testkit.Quantities("cpu", "1"), nil)
		}},
		"what another gave back": {kiel: "500m", asked: "600m", prepare: func(_ *room, l *ledger) {
			l.reserve(of("riga", "a"), testkit.Quantities("cpu", "1"), nil)
			l.leave(of("riga", "a").NamespacedName)
		}},
		"what the cluster's own pods use": {kiel: "500m", asked: "600m", want: v1alpha1.ReasonNoRoom, prepare: func(r *room, _ *ledger) {
			r.bind("local", "", "1")
		}},
		"what it has already, when it is made again": {asked: "1800m", prepare: func(r *room, l *ledger) {
			l.reserve(of("lubeck", "asks"), testkit.Quantities("cpu", "1800m"), nil)
			r.guarantee("kiel", "1500m") // later
		}},
		"a resource that others are not guaranteed": {kiel: "2", asked: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(cluster)
			l := ledgerIn(r)
			for peer, cpu := range map[string]string{"kiel": test.kiel, "lubeck": test.lubeck} {
				if cpu != "" {
					r.guarantee(peer, cpu)
				}
			}
			if test.prepare != nil {
				test.prepare(r, l)
			}
			var limits corev1.ResourceList
			if test.limit != "" {
				limits = testkit.Quantities("cpu", test.limit)
			}
			demand := testkit.Quantities("cpu", test.asked, "memory", "1Gi", "pods", "1")
			reason := ""
			if short := l.reserve(of("lubeck", "asks"), demand, limits); short != nil {
				reason = short.reason
			}
			if reason != test.want {
				t.Errorf("the answer is %q, want %q", reason, test.want)
			}
		})
	}
}

func TestRunningPodGrowsOnlyIntoWhatIsNobodys(t *testing.T) {
	r := newRoom("2")
	l := ledgerIn(r)
	r.guarantee("kiel", "1500m")
	who := of("lubeck", "web")
	l.reserve(who, testkit.Quantities("cpu", "300m"), nil)
	r.bind("web", "lubeck", "300m")
	for _, step := range []struct {
		cpu string
		let bool
	}{{"500m", true}, {"600m", false}, {"400m", true}, {"500m", true}} {
		if short := l.change(who, testkit.Quantities("cpu", step.cpu), nil); (short == nil) != step.let {
			t.Errorf("to %s: %v", step.cpu, short)
		}
	}
}

// Fifty workers ask at once for the last of what is nobody's, while the other's pods come into what is theirs and are bound.
func TestFiftyAtTheEdgeOfAGuarantee(t *testing.T) {
	const free, guaranteed, lubecks, kiels = 2000, 1500, 35, 15
	for range 20 {
		r := newRoom(fmt.Sprintf("%dm", free))
		l := ledgerIn(r)
		r.guarantee("kiel", fmt.Sprintf("%dm", guaranteed))
		var mu sync.Mutex
		let := map[string]int{}
		start := make(chan struct{})
		var group sync.WaitGroup
		ask := func(peer string, i int) {
			<-start
			name := fmt.Sprint("pod-", i)
			l.enter(of(peer, name))
			if l.reserve(of(peer, name), testkit.Quantities("cpu", "100m"), nil) != nil {
				return
			}
			r.mu.Lock()
			r.bind(name, peer, "100m")
			r.mu.Unlock()
			mu.Lock()
			let[peer]++
			mu.Unlock()
		}
		for i := range lubecks {
			group.Go(func() { ask("lubeck", i) })
		}
		for i := range kiels {
			group.Go(func() { ask("kiel", i) })
		}
		close(start)
		group.Wait()
		if let["kiel"] != kiels || let["lubeck"] != (free-guaranteed)/100 {
			t.Fatalf("let in are %v, want all %d of kiel and %d of lubeck", let, kiels, (free-guaranteed)/100)
		}
	}
}

func TestPodForWhichOnlyOthersHaveRoomIsTriedAgain(t *testing.T) {
	s := newStageOf(t, peer(), asking("large", "1800m"))
	s.room.ledger = newRoom("2").ledger
	s.room.guarantee("kiel", "1500m")
	if again := s.runOf("large"); again != refusedAtLeast {
		t.Errorf("it looks again in %s", again)
	}
	s.expectHeld("large", v1alpha1.ReasonNoRoom, "1800m of cpu", "less than that free for this cluster")
	shadow := &v1alpha1.ShadowPod{}
	s.Home.Find(shadow, s.twin, "large")
	for _, c := range shadow.Status.Conditions {
		if strings.Contains(c.Message, "kiel") || strings.Contains(c.Message, "guarante") {
			t.Errorf("it learns of another peer: %s", c.Message)
		}
	}
	s.Clock.Step(time.Hour)
	if again := s.runOf("large"); again != quotaRetryAtMost {
		t.Errorf("it looks again in %s", again)
	}
	s.room.guarantee("kiel", "0")
	s.runOf("large")
	if !s.has("large") {
		t.Error("it has no pod")
	}
}

// Fifty workers reconcile the ShadowPods of two peers.
func TestWorkersKeepWhatIsGuaranteed(t *testing.T) {
	const records = 50
	var shadows []client.Object
	requests := &queue{names: map[reconcile.Request]bool{}}
	kiel := twinOf{peer: "kiel", clusterID: "kiel-id", home: "shop"}
	for i := range records {
		shadow := asking(fmt.Sprintf("pod-%02d", i), "100m")
		if i%2 == 0 {
			shadow.Namespace = kiel.name()
		}
		shadows = append(shadows, shadow)
		requests.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(shadow)})
	}
	w := newWorld(t, slices.Concat(shadows, []client.Object{
		peer(), testkit.Peer("kiel", v1alpha1.RoleConsumer), lubeck.namespace(""), kiel.namespace(""),
	})...)
	w.room.ledger = newRoom("3").ledger
	w.room.guarantee("kiel", "2500m")
	k := newShadowPodReconciler(w.config(), w.Home.Client, w.Home.Server, w.Home.Server)
	k.queue = requests
	work(t, k, requests.take())
	for of, want := range map[string]int{kiel.name(): records / 2, lubeck.name(): 5} {
		pods := &corev1.PodList{}
		if err := w.Home.Server.List(t.Context(), pods, client.InNamespace(of)); err != nil {
			t.Fatal(err)
		}
		if len(pods.Items) != want {
			t.Errorf("%d pods are in %s, want %d", len(pods.Items), of, want)
		}
	}
	if used := k.ledger.used["lubeck"][corev1.ResourceCPU]; used.Cmp(resource.MustParse("500m")) != 0 {
		t.Errorf("lubeck has %s", used.String())
	}
}
