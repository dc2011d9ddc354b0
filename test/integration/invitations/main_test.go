// SPDX-License-Identifier: Apache-2.0

// Package invitations tests invitations, claims and sessions: what they allow, whom they let in, and when they end.
package invitations

import (
	"testing"

	"github.com/hanse-dev/hanse/test/integration/framework"
)

var lubeck, hamburg *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{
		Clusters: map[string]**framework.Cluster{"lubeck": &lubeck, "hamburg": &hamburg},
		Peers:    [][2]string{{"lubeck", "hamburg"}},
	})
}
