// SPDX-License-Identifier: Apache-2.0

// Package policies tests how Rego modules of administrators decide about offers, and how they come into force.
package policies

import (
	"testing"

	"github.com/hanse-dev/hanse/test/integration/framework"
)

var lubeck, hamburg, bremen *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{
		Clusters: map[string]**framework.Cluster{"lubeck": &lubeck, "hamburg": &hamburg, "bremen": &bremen},
		Values:   func(*framework.Cluster) []string { return framework.FrequentMessages },
		Peers:    [][2]string{{"lubeck", "hamburg"}, {"lubeck", "bremen"}, {"hamburg", "bremen"}},
	})
}

// begin waits until lubeck uses the offers of both providers, on the terms that hold without policies.
func begin(t *testing.T) {
	t.Helper()
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		lubeck.AwaitOpen(t, provider)
	}
}
