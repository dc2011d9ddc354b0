// SPDX-License-Identifier: Apache-2.0

// Package hostile tests a consumer whose provider lies, breaks the protocol, or is somebody else. The tests play the provider on
// rostock, which is without Hanse.
package hostile

import (
	"testing"

	"github.com/hanse-dev/hanse/test/integration/framework"
)

var lubeck, hamburg, rostock *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{
		Clusters:     map[string]**framework.Cluster{"lubeck": &lubeck, "hamburg": &hamburg, "rostock": &rostock},
		WithoutHanse: []string{"rostock"},
		Peers:        [][2]string{{"lubeck", "hamburg"}},
	})
}
