// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/test/harness"
)

// The clusters of all stories. They are connected when a story begins that needs them.
var (
	Lubeck    = &Cluster{ID: "lubeck"}
	Hamburg   = &Cluster{ID: "hamburg"}
	Bremen    = &Cluster{ID: "bremen"}
	Wismar    = &Cluster{ID: "wismar"}
	Stade     = &Cluster{ID: "stade"}
	Stralsund = &Cluster{ID: "stralsund"}
	Rostock   = &Cluster{ID: "rostock"}
	Visby     = &Cluster{ID: "visby"}
)

// list has a test binary print the needs of its stories as JSON, and run none of them.
var list = flag.Bool("needs", false, "print what each story needs, and run none")

// declared are the stories of the package under test. A test binary has one package, so it is written once, by Main.
var declared Stories

// Main runs the stories of a package and returns the exit code. With the flag -needs it prints the stories as JSON instead.
func Main(m *testing.M, stories Stories) int {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	declared = stories
	if *list {
		if err := json.NewEncoder(os.Stdout).Encode(stories); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if harness.StateFolder() == "" {
		fmt.Println("stories need real clusters: run make e2e RUN='^TestName$'")
		return 0
	}
	return m.Run()
}

// Begin connects the story to its clusters and waits until they are as its needs say. Each story calls it first. A story that is not
// alone runs in parallel with others.
func Begin(t *testing.T) context.Context {
	t.Helper()
	needs, ok := declared[t.Name()]
	if !ok {
		t.Fatalf("%s is missing in the table of stories of its package, stories_test.go", t.Name())
	}
	if !needs.Alone {
		t.Parallel()
	}
	shape := needs.Shape()
	bedShape = shape
	if err := connect(t.Context(), shape.Names(needs.With)); err != nil {
		t.Fatalf("connect to the clusters of shape %q: %v", shape, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, c := range shape.clusters() {
				c.Describe("")
			}
		}
	})
	awaitStart(t, needs)
	return t.Context()
}

// awaitStart waits for what holds when a story begins.
func awaitStart(t *testing.T, needs Needs) {
	t.Helper()
	switch shape := needs.Shape(); {
	case shape.IPv6: // the stories install Hanse themselves
	case shape.Network:
		AwaitConnected(t, Lubeck, Hamburg)
		AwaitConnected(t, Lubeck, Bremen)
	case shape.isMarket():
		for _, provider := range []*Cluster{Hamburg, Bremen} {
			Lubeck.AwaitOpen(t, provider)
		}
	case needs.Alone && !needs.Unpeered:
		if err := PeerBothWays(t.Context(), Lubeck, Hamburg); err != nil {
			t.Fatal(err)
		}
	}
}

// connected guards connections, because stories of one process may begin at the same time.
var connected sync.Mutex

// connect connects to the clusters of these names, unless they are connected.
func connect(ctx context.Context, names []string) error {
	connected.Lock()
	defer connected.Unlock()
	for _, c := range []*Cluster{Lubeck, Hamburg, Bremen, Wismar, Stade, Stralsund, Rostock, Visby} {
		if c.Cluster != nil || !slices.Contains(names, c.ID) {
			continue
		}
		var err error
		if c.Cluster, err = harness.Connect(ctx, c.ID, 0); err != nil {
			return err
		}
	}
	return nil
}
