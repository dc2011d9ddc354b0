// SPDX-License-Identifier: Apache-2.0

// Package reservations tests Requests of consumers: what a provider reserves for them, for how long, and what it refuses.
package reservations

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

// A guest is a consumer that tests of this package play.
type guest struct{ *framework.Guest }

func welcome(t *testing.T, name string) *guest {
	t.Helper()
	return &guest{hamburg.Welcome(t, name)}
}

func welcomeWithin(t *testing.T, name, limits string) *guest {
	t.Helper()
	return &guest{hamburg.WelcomeWithin(t, name, limits)}
}

// refusedStatements returns how many statements of the peer the manager has refused for the reason.
func refusedStatements(t *testing.T, c *framework.Cluster, peer, reason string) int {
	t.Helper()
	return int(c.Metric(t, `hanse_statements_refused_total{peer="`+peer+`",reason="`+reason+`"}`))
}
