// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// What guards a twin is not watched, because that needs rights in all namespaces. So it is read when it rests on something
// else than before, and from time to time: after repairPeriod, give or take, and of many twins so few in a second that it is
// no burden.
const (
	repairPeriod     = 10 * time.Minute
	repairJitter     = 0.2
	repairsPerSecond = 10
)

// guarded is what is known of the guards of a twin. It only spares reads: a new process looks at all of them.
type guarded struct {
	seen    string    // all that they rest on and that costs nothing to see
	due     time.Time // when they are looked at again
	counted bool      // the quota is in force
}

// guarding is what is known of the guards of all twins.
type guarding struct {
	mu    sync.Mutex
	twins map[types.NamespacedName]guarded // mapping → its twin
	nodes int                              // how often the ranges of our nodes have changed
}

// sight sums up what the guards of the twin rest on.
func (g *guarding) sight(peer *v1alpha1.Peer, ns *corev1.Namespace, home ranges, ownKinds bool) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	spec, err := json.Marshal(peer.Spec)
	return fmt.Sprintln(peer.UID, string(spec), ns.UID, home, ownKinds, g.nodes), err
}

func (g *guarding) of(mapping types.NamespacedName) guarded {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.twins[mapping]
}

// due is when the twin is looked at again.
func (g *guarding) due(mapping types.NamespacedName) time.Time { return g.of(mapping).due }

// done keeps what was found at that time. A look that only counted does not put off the next repair.
func (g *guarding) done(mapping types.NamespacedName, found guarded, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.twins == nil {
		g.twins = map[types.NamespacedName]guarded{}
	}
	found.due = g.twins[mapping].due
	if found.due.IsZero() {
		period := max(repairPeriod, time.Duration(len(g.twins))*time.Second/repairsPerSecond)
		found.due = now.Add(wait.Jitter(period, repairJitter))
	}
	g.twins[mapping] = found
}

func (g *guarding) forget(mapping types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.twins, mapping)
}

// nodesChanged has the guards of all twins looked at again.
func (g *guarding) nodesChanged() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes++
}
