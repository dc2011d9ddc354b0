// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/sanitize"
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
	stats  stats.Summary
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
	pods, err := currentPods(limited, m.reader, m.links, m.node, m.clock.Now())
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
	byTwin := map[string]map[string]*corev1.Pod{} // those with a container running, by twin namespace and name
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
	return askAll(ctx, link, byTwin)
}

// askAll asks the peer once for each twin namespace.
func askAll(ctx context.Context, to *peers.Link, byTwin map[string]map[string]*corev1.Pod) (map[containerKey]usage, error) {
	var (
		mu   sync.Mutex
		told = map[containerKey]usage{}
		asks errgroup.Group
	)
	asks.SetLimit(readsAtOnce)
	for twin, ours := range byTwin {
		asks.Go(func() error {
			found, err := podsUsage(ctx, to, twin, ours)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(told, found)
			return err
		})
	}
	return told, asks.Wait()
}

// What is believed of a peer's metrics at most. A value beyond is none.
const (
	maxPodUsages       = 20_000
	maxContainerUsages = 64 << 10 // bytes of the list of one pod's containers
	maxCores           = 1 << 16
	maxBytes           = 1 << 50
)

// errNoMetrics says that a peer has no metrics API, or does not let us use it.
var errNoMetrics = errors.New("the peer has no metrics API: metrics-server has to run there")

// usage is what a container uses at a moment.
type usage struct {
	cores, bytes float64
}

// podMetrics is what we read of a PodMetrics of metrics.k8s.io. Quantities are texts, since those of a peer can be such that
// they take minutes to decode.
type podMetrics struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Containers json.RawMessage `json:"containers"`
}

type containerMetrics struct {
	Name  string `json:"name"`
	Usage struct {
		CPU    string `json:"cpu"`
		Memory string `json:"memory"`
	} `json:"usage"`
}

// podsUsage asks the peer what our pods in a twin namespace use. The link bounds the size and the duration of the answer.
func podsUsage(
	ctx context.Context, to *peers.Link, twin string, ours map[string]*corev1.Pod,
) (map[containerKey]usage, error) {
	base, _, err := rest.DefaultServerUrlFor(to.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("address of peer: %w", err)
	}
	address := base.JoinPath("apis", "metrics.k8s.io", "v1beta1", "namespaces", twin, "pods").String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := to.HTTPClient().Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read as far as it is wanted
	switch resp.StatusCode {
	case http.StatusOK:
		list := struct {
			Items podMetricsList `json:"items"`
		}{}
		if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
			return nil, fmt.Errorf("decode metrics: %w", err)
		}
		return list.Items.usageOf(ours), nil
	case http.StatusNotFound, http.StatusForbidden:
		return nil, errNoMetrics
	default:
		return nil, fmt.Errorf("ask for metrics: status %d", resp.StatusCode)
	}
}

// podMetricsList is a list of which no more is kept than a cluster may have.
type podMetricsList []podMetrics

// UnmarshalJSON implements json.Unmarshaler.
func (l *podMetricsList) UnmarshalJSON(raw []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return err // null, or something else that is no list, has no elements
	}
	for len(*l) < maxPodUsages && decoder.More() {
		pod := podMetrics{}
		if err := decoder.Decode(&pod); err != nil {
			return err
		}
		*l = append(*l, pod)
	}
	return nil
}

// usageOf returns what our containers use, where that makes sense. What the peer tells of others counts for nothing, nor
// does what it tells again.
func (l podMetricsList) usageOf(ours map[string]*corev1.Pod) map[containerKey]usage {
	told := map[containerKey]usage{}
	for i := range l {
		pod, containers := ours[l[i].Metadata.Name], []containerMetrics{}
		if pod == nil || len(l[i].Containers) > maxContainerUsages || json.Unmarshal(l[i].Containers, &containers) != nil {
			continue
		}
		for j := range containers {
			one := &containers[j]
			key := containerKey{pod: pod.UID, name: one.Name}
			_, again := told[key]
			cores, sensible := amount(one.Usage.CPU, maxCores)
			bytes, also := amount(one.Usage.Memory, maxBytes)
			if sensible && also && !again && hasContainer(pod, one.Name) {
				told[key] = usage{cores: cores, bytes: bytes}
			}
		}
	}
	return told
}

// amount returns the quantity that the text is, if it is one from zero to most.
func amount(text string, most float64) (float64, bool) {
	if !sanitize.Quantity(text) {
		return 0, false
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, false
	}
	value := quantity.AsApproximateFloat64()
	return value, value >= 0 && value <= most
}
