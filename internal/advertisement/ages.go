package advertisement

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

var ageDescription = prometheus.NewDesc("hanse_advertisement_age_seconds",
	"How long ago the newest message of the provider came in that we keep a copy of.", []string{"peer"}, nil)

// ages tells, when it is asked, how long ago we have heard from each provider.
type ages struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	heard map[string]time.Time // peer → when its newest message came in
}

func newAges(clk clock.PassiveClock) *ages { return &ages{clock: clk, heard: map[string]time.Time{}} }

func (a *ages) set(peer string, heard time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard[peer] = heard
}

func (a *ages) remove(peer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.heard, peer)
}

// Describe names the metric.
func (a *ages) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- ageDescription }

// Collect computes it for each provider.
func (a *ages) Collect(collected chan<- prometheus.Metric) {
	a.mu.Lock()
	heard := maps.Clone(a.heard)
	a.mu.Unlock()
	for peer, at := range heard {
		collected <- prometheus.MustNewConstMetric(ageDescription, prometheus.GaugeValue, a.clock.Since(at).Seconds(), peer)
	}
}
