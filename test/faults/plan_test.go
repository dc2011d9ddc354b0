// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/internal/fault"
)

// The clusters: lubeck consumes what the others provide.
const consumer = "lubeck"

var (
	providers = []string{"hamburg", "bremen"}
	everyone  = append([]string{consumer}, providers...)
)

// kind is what is done to the clusters.
type kind string

const (
	killHanse     kind = "kill-hanse"     // kill -9 of a process of Hanse
	armPoint      kind = "fail-at"        // a process of Hanse ends at a named point, again and again
	killComponent kind = "kill-component" // kill -9 of the API server or etcd
	cutLink       kind = "cut"            // no packet gets through
	cutOneWay     kind = "cut-one-way"    // the consumer does not reach the provider
	flapLink      kind = "flap"           // cut and healed once a second
	deleteRemote  kind = "delete-remote"  // somebody at the provider deletes a pod of the consumer
	deleteTwin    kind = "delete-twin"    // somebody there deletes a namespace with all that the consumer has in it
)

// A step is one fault: what is done, where, when, and for how long.
type step struct {
	at    time.Duration
	kind  kind
	where string
	what  string // the subcommand, component, point, or the other cluster
	hold  time.Duration
}

func (s step) String() string {
	return fmt.Sprintf("%6.1fs %-14s %-8s %-30s for %s", s.at.Seconds(), s.kind, s.where, s.what, s.hold)
}

// A plan is all that happens in a run. It follows from the seed and the duration alone.
type plan struct {
	seed     uint64
	duration time.Duration
	skewed   string // the cluster whose Hanse has a wrong clock
	offset   time.Duration
	steps    []step
	load     []operation
}

func (p plan) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, %s; the clock of Hanse in %s is off by %s\n", p.seed, p.duration, p.skewed, p.offset)
	for _, s := range p.steps {
		fmt.Fprintln(&text, s)
	}
	for _, o := range p.load {
		fmt.Fprintln(&text, o)
	}
	return text.String()
}

// dice are random, and the same for the same seed and lane.
type dice struct{ *rand.Rand }

func newDice(seed, lane uint64) dice {
	return dice{rand.New(rand.NewPCG(seed, lane))}
}

func pick[T any](d dice, from []T) T { return from[d.IntN(len(from))] }

func (d dice) between(least, most time.Duration) time.Duration {
	return (least + time.Duration(d.Int64N(int64(most-least)+1))).Round(100 * time.Millisecond)
}

// newPlan draws a plan. Each lane is a row of faults of one sort, one after the other; faults of different lanes come
// together.
func newPlan(seed uint64, duration time.Duration) plan {
	d := newDice(seed, 0)
	p := plan{seed: seed, duration: duration, skewed: pick(d, everyone), offset: pick(d, []time.Duration{10 * time.Minute, -10 * time.Minute})}
	for i, draw := range []func(dice) step{drawProcess, drawLink, drawPoint, drawRemote, drawTwin} {
		d := newDice(seed, uint64(i)+1)
		for at := d.between(time.Second, 5*time.Second); ; {
			s := draw(d)
			s.at = at
			if at+s.hold > duration {
				break
			}
			p.steps = append(p.steps, s)
			at += s.hold + d.between(time.Second, 6*time.Second)
			if s.kind == killComponent || s.kind == armPoint {
				at += d.between(5*time.Second, 10*time.Second) // what was broken takes a while to start
			}
		}
	}
	slices.SortStableFunc(p.steps, func(a, b step) int { return int(a.at - b.at) })
	p.load = newLoad(newDice(seed, 100), duration)
	return p
}

func drawProcess(d dice) step {
	s := step{where: pick(d, everyone)}
	if s.kind = pick(d, []kind{killHanse, killComponent}); s.kind == killComponent {
		s.what = pick(d, []string{"apiserver", "apiserver", "etcd"})
		s.hold = d.between(500*time.Millisecond, 8*time.Second)
		return s
	}
	s.what = "manager"
	if s.where == consumer && d.IntN(4) > 0 {
		s.what = "kubelet"
	}
	s.hold = d.between(0, 3*time.Second)
	return s
}

func drawLink(d dice) step {
	return step{
		kind: pick(d, []kind{cutLink, cutOneWay, flapLink}), where: consumer, what: pick(d, providers),
		hold: d.between(2*time.Second, 15*time.Second),
	}
}

func drawPoint(d dice) step {
	point := pick(d, fault.Points())
	s := step{kind: armPoint, where: consumer, what: fmt.Sprintf("%s:%d", point, 1+d.IntN(3)), hold: d.between(14*time.Second, 24*time.Second)}
	if strings.HasPrefix(point, "manager/") && !strings.HasPrefix(point, "manager/move-") {
		s.where = pick(d, providers)
	}
	return s
}

func drawRemote(d dice) step {
	return step{kind: deleteRemote, where: pick(d, providers), what: fmt.Sprint(d.IntN(1000)), hold: d.between(3*time.Second, 12*time.Second)}
}

// drawTwin draws what is rare: all pods of a namespace end, and take a while to come back.
func drawTwin(d dice) step {
	return step{kind: deleteTwin, where: pick(d, providers), what: fmt.Sprint(d.IntN(1000)), hold: d.between(15*time.Second, 35*time.Second)}
}

// deletesTwinsAt says whether somebody deletes namespaces of the consumer at the provider.
func (p plan) deletesTwinsAt(provider string) bool {
	return slices.ContainsFunc(p.steps, func(s step) bool { return s.kind == deleteTwin && s.where == provider })
}

func TestPlanFollowsFromItsSeed(t *testing.T) {
	for seed := range uint64(50) {
		p := newPlan(seed, time.Minute)
		if diff := cmp.Diff(p.String(), newPlan(seed, time.Minute).String()); diff != "" {
			t.Fatalf("seed %d has two plans: %s", seed, diff)
		}
		for _, s := range p.steps {
			if s.at < 0 || s.at+s.hold > p.duration {
				t.Errorf("seed %d: %s is not over when the run is", seed, s)
			}
		}
		if len(p.steps) < 8 || len(p.load) < 30 {
			t.Errorf("seed %d has only %d faults and %d operations", seed, len(p.steps), len(p.load))
		}
	}
	if newPlan(1, time.Minute).String() == newPlan(2, time.Minute).String() {
		t.Error("two seeds have one plan")
	}
}

func TestPlansDoEverything(t *testing.T) {
	done := map[string]bool{}
	for seed := range uint64(400) {
		p := newPlan(seed, time.Minute)
		for _, s := range p.steps {
			what, _, _ := strings.Cut(s.what, ":")
			done[string(s.kind)] = true
			done[what] = true
		}
		for _, o := range p.load {
			done[string(o.verb)] = true
		}
	}
	want := slices.Concat(fault.Points(), []string{"apiserver", "etcd", "manager", "kubelet"})
	for _, k := range []kind{killHanse, armPoint, killComponent, cutLink, cutOneWay, flapLink, deleteRemote, deleteTwin} {
		want = append(want, string(k))
	}
	for _, v := range verbs {
		want = append(want, string(v.verb))
	}
	for _, what := range want {
		if !done[what] {
			t.Errorf("no plan has %s", what)
		}
	}
}
