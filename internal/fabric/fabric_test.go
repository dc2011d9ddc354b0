// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// fakePlane counts what it is asked to do.
type fakePlane struct {
	applied []overlay.NodeLayout
	removed int
	failure error
}

func (p *fakePlane) Apply(l overlay.NodeLayout) error {
	p.applied = append(p.applied, l)
	return p.failure
}

func (p *fakePlane) Remove() error {
	p.removed++
	return nil
}

func daemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system-network", Name: "hanse-fabric"}}
}

func connection(seen v1alpha1.CIDR) *v1alpha1.Connection {
	return &v1alpha1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-hamburg", Name: "hanse"},
		Spec:       v1alpha1.ConnectionSpec{Theirs: []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: seen}}},
	}
}

func TestTheNodeFollowsTheObjects(t *testing.T) {
	w, p := testkit.NewWorld(t, connection("100.64.0.0/16")), &fakePlane{}
	f := New(Config{Namespace: "hanse-system", Node: "n1", Clock: w.Clock}, w.Home.Client, p)
	expect := func(what string, applied int) {
		t.Helper()
		err := f.step(t.Context())
		f.failed.Store(&err)
		if err != nil || len(p.applied) != applied {
			t.Errorf("%s, there are %d layouts, want %d: %v", what, len(p.applied), applied, err)
		}
	}
	if f.ready(nil) == nil {
		t.Error("it is ready before it has looked")
	}
	expect("at first", 1)
	expect("while nothing changes", 1)
	f.dirty.Store(true)
	expect("after a change that changes nothing", 1)
	w.Clock.Step(compareAfter)
	expect("after a while", 2)
	testkit.Change(w.Home, "hanse-peer-hamburg", "hanse", func(c *v1alpha1.Connection) { c.Spec.Theirs[0].Seen = "100.65.0.0/16" })
	f.dirty.Store(true)
	expect("after a change", 3)
	if got := p.applied[2].Routes; len(got) != 2 {
		t.Errorf("routes %v, want the new range and the old one, which is dropped", got)
	}
}

func TestWhatFailsIsTriedAgainAndTold(t *testing.T) {
	w, p := testkit.NewWorld(t), &fakePlane{failure: errors.New("no VXLAN")}
	f := New(Config{Namespace: "hanse-system", Node: "n1", Clock: w.Clock}, w.Home.Client, p)
	for range 2 {
		err := f.step(t.Context())
		f.failed.Store(&err)
		if !errors.Is(f.ready(nil), p.failure) {
			t.Errorf("got %v", f.ready(nil))
		}
		w.Clock.Step(retryAfter)
	}
	if len(p.applied) != 2 {
		t.Errorf("tried %d times", len(p.applied))
	}
}

func TestWhatTheKernelLacksIsToldOnce(t *testing.T) {
	lacks := fmt.Errorf("make interface hanse-vx: %w", syscall.EOPNOTSUPP)
	for name, test := range map[string]struct {
		failure error
		objects []client.Object
		told    int
	}{
		"the kernel has no VXLAN":      {lacks, []client.Object{daemonSet()}, 1},
		"something went wrong":         {errors.New("busy"), []client.Object{daemonSet()}, 0},
		"nothing is wrong":             {nil, []client.Object{daemonSet()}, 0},
		"there is nothing to be about": {lacks, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, recorder := testkit.NewWorld(t, test.objects...), events.NewFakeRecorder(10)
			f := New(Config{Namespace: "hanse-system", Node: "n1", Clock: w.Clock, Events: recorder}, w.Home.Client, &fakePlane{failure: test.failure})
			for range 3 {
				f.note(t.Context(), f.step(t.Context()))
				w.Clock.Step(retryAfter)
			}
			if got := len(recorder.Events); got != test.told {
				t.Fatalf("there are %d events, want %d", got, test.told)
			}
			if test.told > 0 && !strings.Contains(<-recorder.Events, "KernelUnsupported Pods on node n1") {
				t.Error("the event does not say what is wrong")
			}
			if !errors.Is(f.ready(nil), test.failure) {
				t.Errorf("it is ready: %v", f.ready(nil))
			}
		})
	}
}

func TestTheNodeIsLeftAsItWasWhenTheFabricGoes(t *testing.T) {
	going := daemonSet()
	going.Finalizers = []string{"foregroundDeletion"}
	going.DeletionTimestamp = &metav1.Time{Time: testkit.Noon}
	network := testkit.Namespace("hanse-system-network", nil)
	closing := network.DeepCopy()
	closing.Finalizers = []string{"example.org/x"}
	closing.DeletionTimestamp = &metav1.Time{Time: testkit.Noon}
	tests := map[string]struct {
		objects []client.Object
		remove  bool
		want    int
	}{
		"the process alone ends":                 {[]client.Object{network, daemonSet()}, false, 0},
		"the process alone ends, and is to undo": {[]client.Object{network, daemonSet()}, true, 1},
		"the DaemonSet is gone":                  {[]client.Object{network}, false, 1},
		"the DaemonSet is being deleted":         {[]client.Object{network, going}, false, 1},
		"the namespace is being deleted":         {[]client.Object{closing, daemonSet()}, false, 1},
		"everything is gone":                     {nil, false, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, p := testkit.NewWorld(t, test.objects...), &fakePlane{}
			f := New(Config{Namespace: "hanse-system", Node: "n1", Remove: test.remove, Clock: w.Clock}, w.Home.Client, p)
			w.Clock.Step(time.Second)
			if err := f.end(t.Context()); err != nil || p.removed != test.want {
				t.Errorf("removed %d times, want %d: %v", p.removed, test.want, err)
			}
		})
	}
}
