package kubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// believedFor is how long a reading serves everybody who asks. Metrics-server asks every 15 s at most.
	believedFor = 10 * time.Second
	// readTimeout is how long a reading may take, which is less than those who scrape wait.
	readTimeout = 5 * time.Second
	// readsAtOnce is how many twin namespaces are asked for at the same time.
	readsAtOnce = 4
)

// A meter reads what the pods of one virtual node use, from the metrics API of its peer. It asks when it is asked.
type meter struct {
	node   string
	reader client.Reader
	links  *peers.Links
	clock  clock.PassiveClock

	mu       sync.Mutex // held during a reading, so that there is one at a time
	asked    time.Time  // when the peer was last asked
	counters counters
	failing  bool // that is in the log
}

// reading is what is known of the node's pods.
type reading struct {
	failed bool // something could not be read
	stats  summaryStats
}

// containerKey is a container of a home pod.
type containerKey struct {
	pod  types.UID
	name string
}

func newMeter(node string, reader client.Reader, links *peers.Links, clk clock.PassiveClock) *meter {
	return &meter{node: node, reader: reader, links: links, clock: clk, counters: counters{began: clk.Now()}}
}

// read returns which pods run, and what they used when their peer was last asked, which is done again if it was long ago.
func (m *meter) read(ctx context.Context) reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pods, err := currentPods(limited, m.reader, m.links, m.node)
	if err != nil {
		m.report(ctx, err)
		return reading{failed: true}
	}
	m.counters.follow(pods, m.clock.Now())
	if m.asked.IsZero() || m.clock.Since(m.asked) >= believedFor {
		told, err := m.ask(limited, pods)
		if ctx.Err() != nil {
			return reading{failed: true} // whoever asked has gone, which tells nothing to others
		}
		m.report(ctx, err)
		m.asked = m.clock.Now()
		m.counters.account(told, m.asked)
	}
	return reading{failed: m.failing, stats: m.counters.summary(m.node, pods)}
}

// report says in the log when readings begin to fail, and when they succeed again.
func (m *meter) report(ctx context.Context, err error) {
	log := logr.FromContextOrDiscard(ctx).WithValues("Node", m.node)
	if failing := err != nil; failing != m.failing {
		m.failing = failing
		if failing {
			log.Error(err, "Cannot read what the pods of the node use")
		} else {
			log.Info("Reading again what the pods of the node use")
		}
	}
}

// ask asks the peer what the pods of the node use. What it could not be asked for is missing, with an error.
func (m *meter) ask(ctx context.Context, pods []corev1.Pod) (map[containerKey]usage, error) {
	link, linked := m.links.Get(peerOf(m.node))
	if !linked {
		return nil, fmt.Errorf("there is no link to peer %q", peerOf(m.node))
	}
	byTwin, err := m.remotePods(link, pods)
	if err != nil {
		return nil, err
	}
	return askAll(ctx, link, byTwin)
}

// remotePods returns the pods that have a container running, by twin namespace and name.
func (m *meter) remotePods(link *peers.Link, pods []corev1.Pod) (map[string]map[string]*corev1.Pod, error) {
	byTwin := map[string]map[string]*corev1.Pod{}
	for i := range pods {
		pod := &pods[i]
		if len(containersRunning(pod)) == 0 {
			continue
		}
		seen := look(link, pod.Namespace, pod.Name)
		if !seen.answers {
			return nil, fmt.Errorf("peer %q does not answer", link.Peer())
		}
		if seen.shadow == nil || seen.shadow.Spec.HomeUID != pod.UID {
			continue
		}
		remote, found := link.RemotePod(seen.shadow)
		if !found {
			continue
		}
		if byTwin[remote.Namespace] == nil {
			byTwin[remote.Namespace] = map[string]*corev1.Pod{}
		}
		byTwin[remote.Namespace][remote.Name] = pod
	}
	return byTwin, nil
}

// askAll asks the peer once for each twin namespace. What it tells of others than our pods and their containers counts
// for nothing, nor does what it tells again.
func askAll(ctx context.Context, to *peers.Link, byTwin map[string]map[string]*corev1.Pod) (map[containerKey]usage, error) {
	var (
		mu   sync.Mutex
		told = map[containerKey]usage{}
		asks errgroup.Group
	)
	asks.SetLimit(readsAtOnce)
	for twin, ours := range byTwin {
		asks.Go(func() error {
			return podsUsage(ctx, to, twin, func(name, container string, used usage) {
				pod := ours[name]
				if pod == nil || !hasContainer(pod, container) {
					return
				}
				key := containerKey{pod: pod.UID, name: container}
				mu.Lock()
				defer mu.Unlock()
				if _, again := told[key]; !again {
					told[key] = used
				}
			})
		})
	}
	return told, asks.Wait()
}
