// SPDX-License-Identifier: Apache-2.0

// Package offloading tests which pods are offloaded and with what in them, as far as API server, scheduler and controller manager
// decide that. Pods run on KWOK nodes.
package offloading

import (
	"testing"

	"github.com/hanse-dev/hanse/test/integration/framework"
)

var lubeck, hamburg *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{
		Clusters: map[string]**framework.Cluster{"lubeck": &lubeck, "hamburg": &hamburg},
		Values: func(c *framework.Cluster) []string {
			if c.Name != "lubeck" {
				return nil
			}
			return []string{"defaultOffloading.namespaceSelector=team=sailors", "defaultOffloading.spec.strategy=Remote"}
		},
		Peers: [][2]string{{"lubeck", "hamburg"}},
	})
}
