// SPDX-License-Identifier: Apache-2.0

// Package admission tests what only a real API server shows: that definitions establish and their rules hold, that the
// admission policies of the chart accept and refuse, and that RBAC gives what was reviewed.
package admission

import (
	"testing"

	"github.com/hanse-dev/hanse/test/integration/framework"
)

var lubeck *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{
		Clusters: map[string]**framework.Cluster{"lubeck": &lubeck},
		// The reviewed list of rights is that of a cluster with a gateway.
		Values: func(*framework.Cluster) []string { return []string{"gateway.enabled=true"} },
	})
}
