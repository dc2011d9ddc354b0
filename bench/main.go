// SPDX-License-Identifier: Apache-2.0

// Command bench measures Hanse on real API servers against the bounds of the design, and prints tables. Nothing in it
// asserts a time: it fails only when something breaks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/network"
	"github.com/hanse-dev/hanse/bench/reflection"
	"github.com/hanse-dev/hanse/bench/scale"
)

// options are the flags.
type options struct {
	bed     lab.Testbed
	results string
	run     string
	ads     numbers
	bursts  numbers
	rounds  int
	single  int
	scale   scale.Config
	network network.Config
	ones    int
	moves   int

	applications, members int

	reflection reflection.Config
	limit      time.Duration
	qps        int
	note       string
	up         string
}

func main() {
	ctrl.SetLogger(logr.Discard())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // a program of its own
	}
}

func parse() options {
	o := options{ads: numbers{10, 100, 1000}, bursts: numbers{100, 1000}}
	flag.StringVar(&o.bed.Bin, "bin", "bin", "folder of programs")
	flag.StringVar(&o.bed.State, "state", ".testbed/bench", "folder for the state of clusters")
	flag.StringVar(&o.results, "results", "bench/results", "folder for the report; empty: standard output only")
	flag.StringVar(&o.run, "run", "advertisements,bursts,scale", "what to measure, separated by commas: advertisements, applications, broker, scale, moves, network, reflection, guards (bursts without one guard after the other), requests (what one write costs), and bursts or floors (bursts without Hanse)")
	flag.Var(&o.ads, "advertisements", "how many advertisements at once, separated by commas")
	flag.IntVar(&o.ones, "one-by-one", 50, "how many advertisements one after the other")
	flag.Var(&o.bursts, "bursts", "how many pods at once, separated by commas")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each burst, plain and offloaded")
	flag.IntVar(&o.single, "single", 30, "rounds of one pod alone")
	flag.IntVar(&o.scale.Running, "scale-running", 300, "pods that run while the kubelet is killed")
	flag.IntVar(&o.scale.Restarts, "scale-restarts", 10, "how often the kubelet is killed while they run")
	flag.IntVar(&o.scale.Pods, "scale-pods", 10_000, "pods that run while it is measured what they take")
	flag.IntVar(&o.scale.Cycles, "scale-cycles", 10_000, "pods that are created, become Ready and are deleted")
	flag.IntVar(&o.moves, "moves", 100, "pods of a Deployment that are moved, one by one and ten at a time")
	flag.IntVar(&o.applications, "applications", 100, "Requests and Applications, one by one and all at once; a consumer may have 100")
	flag.IntVar(&o.members, "members", 1000, "members of a broker")
	flag.IntVar(&o.network.Rounds, "network-rounds", 60, "rounds of each way through two gateways")
	flag.IntVar(&o.network.Times, "network-times", 5, "times that two clusters become peers, each time as strangers, for the first packet")
	flag.IntVar(&o.network.Peers, "network-peers", 100, "peers that a gateway has while its memory is read; 0: no clusters, so no first packets either")
	flag.IntVar(&o.network.Nodes, "network-nodes", 5, "nodes that come new, one after the other")
	flag.IntVar(&o.reflection.Objects, "reflection-objects", 1000, "objects of each kind that are reflected at once")
	flag.IntVar(&o.reflection.Rounds, "reflection-rounds", 3, "rounds of that, by Hanse and by a direct client")
	flag.IntVar(&o.reflection.Changes, "reflection-changes", 100, "changes of one object, one by one and in a row")
	flag.IntVar(&o.reflection.Held, "reflection-held", 10_000, "reflected objects while memory is read; 0: it is not read")
	flag.DurationVar(&o.limit, "limit", 40*time.Minute, "how long bursts, each number of advertisements, or each part of scale may take before it counts as broken")
	flag.IntVar(&o.qps, "scheduler-qps", 2000, "requests a second that schedulers may make; 0: their default of 50")
	flag.StringVar(&o.note, "note", "", "what to say about this run in the report, such as who else used the machine")
	flag.StringVar(&o.up, "up", "", "more flags for `testbed up`, separated by spaces, such as --arg apiserver:profiling=true")
	flag.Parse()
	o.bed.Flags = strings.Fields(o.up)
	return o
}

func run(ctx context.Context) error {
	o := parse()
	var err error
	for _, dir := range []*string{&o.bed.Bin, &o.bed.State} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	report, err := newReport(ctx, o, clock.RealClock{})
	if err != nil {
		return err
	}
	// What was measured before something broke is worth reading.
	return errors.Join(o.measure(ctx, report), report.write(o.results))
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

// newReport describes the run.
func newReport(ctx context.Context, o options, clock clock.PassiveClock) (*report, error) {
	version, err := o.bed.Version(ctx)
	if err != nil {
		return nil, err
	}
	machine, err := lab.Machine()
	if err != nil {
		return nil, err
	}
	r := &report{begun: clock.Now().UTC(), facts: append([]string{"Hanse " + version}, machine...)}
	if o.note != "" {
		r.facts = append(r.facts, o.note)
	}
	return r, nil
}
