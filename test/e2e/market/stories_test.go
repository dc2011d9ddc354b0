// SPDX-License-Identifier: Apache-2.0

package market

import (
	"os"
	"testing"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The clusters of the stories.
var (
	lubeck  = framework.Lubeck
	hamburg = framework.Hamburg
	bremen  = framework.Bremen
)

// stories says what each story of this package needs.
var stories = framework.Stories{
	"TestApplicationOverThreeClusters": {Clusters: 3, Workers: 2, Network: true, Alone: true, OnRequest: true, With: []framework.Extra{framework.Storage, framework.OrdersImage}},
	"TestApplicationPlacedAsAWhole":    {Clusters: 4, Alone: true, Core: true},
	"TestAuction":                      {Clusters: 4, Alone: true, Core: true},
	"TestLostComponentIsPlacedAgain":   {Clusters: 4, Alone: true},
	"TestNoDoubleSale":                 {Alone: true},
	"TestReleaseReachesCutOffProvider": {Clusters: 4, Alone: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
