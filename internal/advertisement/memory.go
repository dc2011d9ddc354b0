// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

func decide(ctx context.Context, decider policy.Decider, question policy.Question, known policy.Facts) (policy.Decision, error) {
	input, err := policy.NewInput(known)
	if err != nil {
		return policy.Decision{}, fmt.Errorf("put the advertisement into words for the policies: %w", err)
	}
	return decider.Decide(ctx, question, input)
}

// A memory keeps what need not be found out again of each peer, such as the newest answer of the policies: they are not to
// be asked for every pod that comes or goes. It is a cache: what is not in it is found out again.
type memory[T any] struct {
	mu     sync.Mutex
	byPeer map[string]T
}

func (m *memory[T]) of(peer string) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byPeer[peer]
}

func (m *memory[T]) keep(peer string, known T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byPeer == nil {
		m.byPeer = map[string]T{}
	}
	m.byPeer[peer] = known
}

func (m *memory[T]) forget(peer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byPeer, peer)
}

// peers returns those of which something is known.
func (m *memory[T]) peers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.byPeer))
}

// A signal tells of a change that is not of one object. It holds one event until somebody takes it.
type signal chan event.GenericEvent

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- event.GenericEvent{}:
	default: // there is one already
	}
}

// toPeers is a source that has all peers of the role looked at.
func (s signal) toPeers(reader client.Reader, roles ...v1alpha1.PeerRole) source.Source {
	return source.Channel(s, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return peersWith(ctx, reader, roles)
	}))
}

func peersWith(ctx context.Context, reader client.Reader, roles []v1alpha1.PeerRole) []reconcile.Request {
	known := &v1alpha1.PeerList{}
	if err := reader.List(ctx, known, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List peers")
		return nil
	}
	var requests []reconcile.Request
	for i := range known.Items {
		if slices.ContainsFunc(roles, known.Items[i].HasRole) {
			requests = append(requests, requestFor(known.Items[i].Name))
		}
	}
	return requests
}

func requestFor(peer string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: peer}}
}

// peerOf maps a copy, or our own advertisement, to its peer.
func peerOf(_ context.Context, object client.Object) []reconcile.Request {
	peer, found := object.GetLabels()[v1alpha1.LabelPeer]
	if !found {
		return nil
	}
	return []reconcile.Request{requestFor(peer)}
}
