package tenant

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// hints are what a process remembers of ShadowPods to spare itself work. Nothing is decided by them that would be decided
// otherwise without them.
type hints[T any] struct {
	mu sync.Mutex
	of map[types.NamespacedName]T
}

func (n *hints[T]) get(name types.NamespacedName) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[name]
}

func (n *hints[T]) set(name types.NamespacedName, note T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[types.NamespacedName]T{}
	}
	n.of[name] = note
}

func (n *hints[T]) leave(name types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, name)
}

// carried is the generation of a ShadowPod that the pod was made from or changed to.
type carried struct {
	pod        types.UID
	generation int64
}

const (
	// writePeriod is how often the status of one ShadowPod is written over time, and writeBurst what may come at once: a
	// pod on its way up changes a few times in a row.
	writePeriod = time.Second
	writeBurst  = 3
)

// pace bounds how often the status of each ShadowPod is written.
type pace struct {
	paid hints[time.Time] // until when what was written counts
}

// untilNext is how long the next write of a status has to wait.
func (p *pace) untilNext(name types.NamespacedName, now time.Time) time.Duration {
	return max(p.paid.get(name).Add(-(writeBurst-1)*writePeriod).Sub(now), 0)
}

// wrote counts a write.
func (p *pace) wrote(name types.NamespacedName, now time.Time) {
	paid := p.paid.get(name)
	if paid.Before(now) {
		paid = now
	}
	p.paid.set(name, paid.Add(writePeriod))
}

// sooner returns the shorter of two waits, of which none is 0.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
