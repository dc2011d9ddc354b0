// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/testbed/internal/network"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

func bed(t *testing.T) *Testbed {
	t.Helper()
	return &Testbed{Dir: filepath.Join(t.TempDir(), "state"), Bin: "/bin", Rootless: true, Say: t.Logf}
}

func TestLockIsHeldByOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks", "state")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 3*lockPace)
	defer cancel()
	if _, err := lock(impatient, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second holder got %v", err)
	}
	unlock()
	if unlock, err = lock(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestLockOnARemovedFileIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	again, err := lock(t.Context(), path) // nobody holds the file that is there now
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// planned plans one cluster beside those that exist.
func planned(t *testing.T, b *Testbed, name string, change func(*plan.Options)) (*plan.Cluster, error) {
	t.Helper()
	existing, err := b.Clusters()
	if err != nil {
		t.Fatal(err)
	}
	clusters, err := b.planned([]string{name}, existing, change)
	if err != nil {
		return nil, err
	}
	return clusters[0], nil
}

func unchanged(*plan.Options) {}

func TestPlannedClusterKeepsWhatIsNotChanged(t *testing.T) {
	b := bed(t)
	first, err := planned(t, b, "lubeck", func(o *plan.Options) { o.SimulatedNodes = 3 })
	if err != nil {
		t.Fatal(err)
	}
	if err := b.write(first); err != nil {
		t.Fatal(err)
	}
	again, err := planned(t, b, "lubeck", func(o *plan.Options) { o.Audit = true })
	if err != nil {
		t.Fatal(err)
	}
	want := *first
	want.Options.Audit = true
	if diff := cmp.Diff(&want, again, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := planned(t, b, "lubeck", func(o *plan.Options) { o.Workers = 1 }); err == nil {
		t.Error("a worker without root was planned")
	}
	if _, err := planned(t, b, "lubeck", func(o *plan.Options) { o.Kubernetes = "v1.36.3" }); err == nil {
		t.Error("another version was planned for a cluster that exists")
	}
}

func TestClustersPlannedTogetherShareNothing(t *testing.T) {
	b := bed(t)
	clusters, err := b.planned([]string{"lubeck", "hamburg", "lubeck"}, nil, unchanged)
	if err != nil || len(clusters) != 3 {
		t.Fatalf("%d clusters, %v", len(clusters), err)
	}
	if clusters[0] != clusters[2] {
		t.Error("the same name is two clusters")
	}
	if clusters[0].Index == clusters[1].Index {
		t.Errorf("both have index %d", clusters[0].Index)
	}
	seen := map[int]bool{}
	for _, one := range clusters[:2] {
		for _, port := range numbers(&one.Ports) {
			if seen[*port] {
				t.Errorf("port %d is there twice", *port)
			}
			seen[*port] = true
		}
	}
}

func TestClustersWithAndWithoutRootAreNotMixed(t *testing.T) {
	b := bed(t)
	first, err := planned(t, b, "lubeck", unchanged)
	if err != nil {
		t.Fatal(err)
	}
	if rootless, err := b.IsRootless(); rootless || err != nil {
		t.Errorf("a testbed without clusters is rootless: %t, %v", rootless, err)
	}
	if err := b.write(first); err != nil {
		t.Fatal(err)
	}
	if rootless, err := b.IsRootless(); !rootless || err != nil {
		t.Errorf("its cluster needs no root: %t, %v", rootless, err)
	}
	b.Rootless = false
	if _, err := planned(t, b, "hamburg", unchanged); !errors.Is(err, errMixed) {
		t.Errorf("a cluster with root beside one without: %v", err)
	}
}

func TestWhatCannotBePlannedLeavesNothing(t *testing.T) {
	b := bed(t)
	if err := b.Up(t.Context(), []string{"lubeck"}, func(o *plan.Options) { o.Workers = -1 }); err == nil {
		t.Fatal("fewer than no workers were taken")
	}
	if _, err := os.Stat(b.Dir); !os.IsNotExist(err) {
		t.Errorf("a folder was left: %v", err)
	}
}

func TestSomebodyElsesFolderIsNotTouched(t *testing.T) {
	b := bed(t)
	precious := filepath.Join(b.Dir, "precious", "file")
	if err := os.MkdirAll(filepath.Dir(precious), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Up(t.Context(), []string{"lubeck"}, func(*plan.Options) {}); err == nil {
		t.Error("up took the folder")
	}
	if err := b.Down(t.Context(), nil); err == nil {
		t.Error("down took the folder")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestTestbedInsideAnotherIsLeftAlone(t *testing.T) {
	outer := bed(t)
	inner := &Testbed{Dir: filepath.Join(outer.Dir, "e2e"), Bin: "/bin", Rootless: true, Say: t.Logf}
	one, err := planned(t, inner, "lubeck", unchanged)
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.write(one); err != nil {
		t.Fatal(err)
	}
	unlock, err := inner.lockState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := outer.validateDir(t.Context()); err != nil {
		t.Errorf("the outer one cannot be: %v", err)
	}
	if _, err := planned(t, outer, "e2e", unchanged); err == nil {
		t.Error("a cluster of the outer one would have the inner one's folder")
	}
	if err := outer.Down(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if clusters, err := inner.Clusters(); err != nil || len(clusters) != 1 {
		t.Errorf("the inner one has %d clusters, %v", len(clusters), err)
	}
}

func TestDownWithoutAnythingIsDone(t *testing.T) {
	b := bed(t)
	if err := b.Down(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.Dir); !os.IsNotExist(err) {
		t.Errorf("a folder was left: %v", err)
	}
}

func TestClusterThatDoesNotExist(t *testing.T) {
	b := bed(t)
	_, err := b.Cluster("lubeck")
	_, named := b.Named([]string{"lubeck"})
	for _, err := range []error{err, named, b.Act(t.Context(), "lubeck", nil)} {
		if !errors.Is(err, ErrNoCluster) {
			t.Errorf("got %v", err)
		}
	}
	if err := b.Down(t.Context(), []string{"lubeck"}); err != nil {
		t.Errorf("it is down already, yet %v", err)
	}
}

func TestHealEndsBothWays(t *testing.T) {
	cuts := []network.Cut{{From: "a", To: "b"}, {From: "b", To: "a"}, {From: "a", To: "c", OneWay: true}}
	if diff := cmp.Diff(cuts[2:], without(append([]network.Cut(nil), cuts...), "b", "a")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	path := filepath.Join(t.TempDir(), "x")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := lock(ctx, path); err == nil {
		t.Error("got a lock that somebody holds")
	}
}
