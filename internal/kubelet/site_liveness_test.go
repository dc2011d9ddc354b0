package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/peers"
)

// A liveMirror fails and recovers as it is told.
type liveMirror struct {
	emptyMirror
	mu     sync.Mutex
	err    error
	failed chan struct{}
}

func newLiveMirror() *liveMirror { return &liveMirror{failed: make(chan struct{})} }

func (m *liveMirror) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *liveMirror) Failed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

func (m *liveMirror) set(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && err != nil {
		close(m.failed)
	}
	if m.err != nil && err == nil {
		m.failed = make(chan struct{})
	}
	m.err = err
}

func (*liveMirror) List() []client.Object { return nil }

// watched is a site that is watched over, with what it tells.
type watched struct {
	t        *testing.T
	all      *sites
	mappings *liveMirror
	shadows  *liveMirror
	nodes    chan linkState // what is known whenever the node is to be looked at
	pods     chan struct{}  // all pods are to be looked at
}

func newWatched(t *testing.T, linkTimeout time.Duration) *watched {
	w := &watched{
		t: t, mappings: newLiveMirror(), shadows: newLiveMirror(),
		nodes: make(chan linkState, 10), pods: make(chan struct{}, 10),
	}
	links := &fakeLink{done: make(chan struct{})}
	w.all = &sites{
		links: &fakeLinks{link: links}, open: map[string]*site{}, ring: func(request) {}, linkTimeout: linkTimeout,
		wake:     func(context.Context, *site, string) { w.pods <- struct{}{} },
		ringNode: func(peer string) { w.nodes <- w.all.state(peer) },
	}
	at := &site{sites: w.all, peer: turin, link: links, twins: map[string]twin{
		"shop": {name: twinName, shadows: w.shadows, stop: func() {}},
	}}
	at.ctx, at.close = context.WithCancel(t.Context())
	at.mappings = w.mappings
	w.all.open[turin] = at
	failed := w.mappings.Failed()
	w.all.waits.run(func() { at.watchOver(failed) })
	t.Cleanup(func() {
		at.close()
		w.all.waits.end()
	})
	return w
}

func (w *watched) expectNode(want linkState) {
	w.t.Helper()
	select {
	case got := <-w.nodes:
		if got != want {
			w.t.Fatalf("the link is in state %d, want %d", got, want)
		}
	case <-time.After(30 * time.Second):
		w.t.Fatal("the node was not looked at")
	}
}

func (w *watched) expectPods() {
	w.t.Helper()
	select {
	case <-w.pods:
	case <-time.After(30 * time.Second):
		w.t.Fatal("nobody looked at the pods")
	}
}

var errLost = fmt.Errorf("%w: no answer", peers.ErrLost)

func TestPeerThatWasLostIsCutOffUntilItAnswersAgain(t *testing.T) {
	w := newWatched(t, 600*time.Millisecond)
	w.mappings.set(errLost)
	w.expectPods()
	w.expectNode(linkCut)
	if !w.all.get(turin).look("shop", "web-1").cut {
		t.Error("its pods look as if nothing had happened")
	}

	w.shadows.set(errLost)
	w.mappings.set(nil)
	select {
	case <-w.nodes:
		t.Error("it is back before its pods are")
	case <-time.After(3 * recoveryPoll):
	}
	w.shadows.set(nil)
	w.expectNode(linkUp)
	w.expectPods()
	if w.all.get(turin).look("shop", "web-1").cut {
		t.Error("its pods are still cut off")
	}
}

func TestOneFailedRequestCutsNobodyOff(t *testing.T) {
	w := newWatched(t, time.Minute)
	w.mappings.set(fmt.Errorf("%w: connection refused", peers.ErrUnreachable))
	if seen := w.all.get(turin).look("shop", "web-1"); seen.answers || seen.cut {
		t.Errorf("answers %t, cut %t", seen.answers, seen.cut)
	}
	if got := w.all.state(turin); got != linkUnknown {
		t.Errorf("the link is in state %d", got)
	}
	w.mappings.set(nil)
	w.expectPods() // those that were put off meanwhile
	if len(w.nodes) > 0 {
		t.Error("the node was looked at")
	}
}

func TestPodsOfOneTwinThatMayNotBeReadCutNobodyOff(t *testing.T) {
	w := newWatched(t, 600*time.Millisecond)
	w.shadows.set(errors.New("forbidden"))
	w.mappings.set(errLost)
	w.expectPods()
	w.expectNode(linkCut)
	w.mappings.set(nil)
	w.expectNode(linkUp)
}

func TestSilenceIsEnoughOfAFailureByItself(t *testing.T) {
	all := &sites{linkTimeout: 3 * time.Second}
	if lost, refused := all.grace(errLost), all.grace(peers.ErrUnreachable); lost > time.Second || refused <= lost {
		t.Errorf("grace of %s after silence, %s after a refusal", lost, refused)
	}
}
