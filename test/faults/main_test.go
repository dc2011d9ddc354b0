// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var (
	seed     = flag.Uint64("seed", 0, "seed of the plan; by default another one each time")
	duration = flag.Duration("duration", 3*time.Minute, "how long things are broken")
)

// waitTimeout is how long things may take to be right again when nothing is broken any more. It is no measure of speed: a
// provider waits two minutes for home to read how pods ended, a pod whose provider gave it up is held for one and more, and
// what failed often is tried again each minute.
const waitTimeout = 6 * time.Minute

func TestFaults(t *testing.T) {
	if os.Getenv("HANSE_E2E") == "" {
		t.Skip("needs real clusters: run make e2e-faults")
	}
	ctrl.SetLogger(logr.Discard())
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	p := newPlan(*seed, *duration)
	replay := fmt.Sprintf("make e2e-faults SEED=%d DURATION=%s", p.seed, p.duration)
	t.Log(replay)
	clusters := map[string]*cluster{}
	var wrong []violation
	t.Cleanup(func() {
		if !t.Failed() && len(wrong) == 0 {
			return
		}
		t.Logf("the plan:\n%s", p)
		describe(t, clusters)
		t.Log("replay it with " + replay)
		for _, v := range wrong { // last, because a long log is often read from its end
			t.Error(v)
		}
	})
	w := setUp(t, clusters, p)
	supervise(t)
	breakThings(t, clusters, p, w)
	expect := func(when string, check func(state) []violation, p plan) {
		found := whenRight(t, when, check, func(ctx context.Context) (state, error) { return observe(ctx, clusters, w, p) })
		if len(found) > 0 {
			describe(t, clusters) // while it is to be seen
		}
		wrong = append(wrong, found...)
	}
	expect("all is healed", checkState, p)
	tellOfMoves(t, clusters[consumer])
	empty(t, clusters)
	expect("everything is deleted", checkEmpty, plan{})
	wrong = append(wrong, judge(t, clusters, p, w)...)
}

func setUp(t *testing.T, clusters map[string]*cluster, p plan) *witness {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, name := range everyone {
		c, err := connect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		clusters[name] = c
	}
	if err := install(ctx, clusters); err != nil {
		t.Fatal(err)
	}
	host, err := clusters[consumer].Machine(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w, err := openWitness(t.Context(), net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// breakThings runs the load and the faults of the plan, and puts everything right again.
func breakThings(t *testing.T, clusters map[string]*cluster, p plan, w *witness) {
	t.Helper()
	u := &user{cluster: clusters[consumer], witness: w.listener.Addr().String()}
	if err := errors.Join(u.offload(t.Context(), loadNamespace), settle(t.Context(), clusters, p)); err != nil {
		t.Fatal(err)
	}
	c := &chaos{t: t, clusters: clusters}
	if err := c.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	performed := make(chan error, 1)
	go func() { performed <- u.perform(t.Context(), p.load) }()
	c.run(t.Context(), p.steps)
	err := c.end(t.Context())
	if err := errors.Join(err, <-performed); err != nil {
		t.Fatal(err)
	}
	runs := w.seen()
	completed := 0
	for _, r := range runs {
		if !r.completed.IsZero() {
			completed++
		}
	}
	t.Logf("%d faults, %d operations, %d containers, of which %d completed; %d watches were seen to expire, %d points went off", len(p.steps),
		len(p.load), len(runs), completed, c.expired.Load(), c.wentOff.Load())
}

// whenRight waits until nothing is wrong, and returns what still is when waitTimeout ends.
func whenRight(t *testing.T, when string, check func(state) []violation, look func(context.Context) (state, error)) []violation {
	t.Helper()
	var last []violation
	start := time.Now()
	err := again(t.Context(), func(ctx context.Context) error {
		s, err := look(ctx)
		if err != nil {
			return err
		}
		if found := check(s); len(found) > 0 {
			last = found
			return fmt.Errorf("%d things are not right", len(found))
		}
		return nil
	})
	if err != nil && len(last) == 0 {
		t.Fatal(err)
	}
	t.Logf("%s: looked for %s; right: %t; not right last: %v", when, time.Since(start).Round(100*time.Millisecond), err == nil, last)
	if err == nil {
		return nil
	}
	return last
}

// tellOfMoves says how the moves have ended.
func tellOfMoves(t *testing.T, home *cluster) {
	t.Helper()
	moves, err := podMoves(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]int{}
	for _, m := range moves {
		ends[m.reason]++
	}
	t.Logf("%d moves have ended: %v", len(moves), ends)
}

// judge reads the logs of all clusters, and returns what must not have happened.
func judge(t *testing.T, clusters map[string]*cluster, p plan, w *witness) []violation {
	t.Helper()
	histories := map[string][]version{}
	for name, c := range clusters {
		history, err := c.history()
		if err != nil {
			t.Fatal(err)
		}
		histories[name] = history
		if len(histories[name]) == 0 {
			t.Errorf("the audit log of %s tells of no pod", name)
		}
	}
	runs := w.seen()
	found := slices.Concat(checkSingle(runs), checkIdentity(runs), checkJobs(runs, p.load), checkRanAgain(runs, histories),
		checkWentBack(histories[consumer]))
	for _, name := range providers {
		found = slices.Concat(found, checkTwoRemotes(name, histories[name]), checkImages(name, histories[name], p.load))
	}
	return found
}

// empty deletes every namespace of the load.
func empty(t *testing.T, clusters map[string]*cluster) {
	t.Helper()
	home := clusters[consumer]
	offloadings := &v1alpha1.NamespaceOffloadingList{}
	if err := home.List(t.Context(), offloadings); err != nil {
		t.Fatal(err)
	}
	for _, o := range offloadings.Items {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}}
		if err := home.Delete(t.Context(), ns); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

// describe prints what a person would look at.
func describe(t *testing.T, clusters map[string]*cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range slices.Sorted(slices.Values(sortedKeys(clusters))) {
		for _, args := range [][]string{
			{"get", "pods,shadowpods,namespacemappings,peers,nodes,ns", "-A", "-o", "wide"},
			{"logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=hanse", "--tail=50", "--prefix"},
		} {
			out, err := clusters[name].Kubectl(ctx, args...)
			t.Logf("--- %s: kubectl %s (%v)\n%s", name, strings.Join(args, " "), err, out)
		}
	}
}
