// SPDX-License-Identifier: Apache-2.0

// Package rights tests what peers and Hanse's own servers may do: RBAC, limits, and what a hostile consumer tries.
package rights

import (
	"testing"

	"github.com/hanse-dev/hanse/test/integration/framework"
)

var hamburg *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{Clusters: map[string]**framework.Cluster{"hamburg": &hamburg}})
}
