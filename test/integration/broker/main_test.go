// SPDX-License-Identifier: Apache-2.0

// Package broker tests how clusters that are no peers know of each other through a broker, and how they become peers.
package broker

import (
	"slices"
	"testing"

	"github.com/hanse-dev/hanse/test/integration/framework"
)

// lubeck is a peer of hamburg and bremen, which are brokers. wismar is nobody's peer when a test begins.
var lubeck, hamburg, bremen, wismar *framework.Cluster

// toWismar stands between wismar and the clusters that wismar invites.
var toWismar *proxy

func TestMain(m *testing.M) {
	toWismar = startProxy()
	framework.Main(m, framework.Config{
		Clusters: map[string]**framework.Cluster{"lubeck": &lubeck, "hamburg": &hamburg, "bremen": &bremen, "wismar": &wismar},
		Values:   values,
		Peers:    [][2]string{{"lubeck", "hamburg"}, {"lubeck", "bremen"}, {"hamburg", "bremen"}},
	})
}

// values returns values of the chart for a cluster.
func values(c *framework.Cluster) []string {
	switch c.Name {
	case "hamburg", "bremen":
		return slices.Concat(framework.FrequentMessages, []string{"broker.enabled=true"})
	case "wismar":
		toWismar.forwardTo(c.Config.Host)
		return slices.Concat(framework.FrequentMessages, []string{"manager.apiServers[0]=" + toWismar.address()})
	}
	return framework.FrequentMessages
}
