// SPDX-License-Identifier: Apache-2.0

package offers

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
	wismar  = framework.Wismar
)

// stories says what each story of this package needs.
var stories = framework.Stories{
	"TestAggregate":               {Clusters: 4, Alone: true},
	"TestAvailabilityFollowsLoad": {Clusters: 4, Alone: true},
	"TestCapacityNotCountedTwice": {Alone: true},
	"TestCheapestFirst":           {Clusters: 4, Alone: true, Core: true},
	"TestClassOfPodsIsPlaced":     {Clusters: 4, Alone: true},
	"TestExcludeHoldsOverHops":    {Clusters: 4, Alone: true},
	"TestFreePool":                {Clusters: 4, Alone: true},
	"TestFullAndPartial":          {Clusters: 4, Alone: true},
	"TestGuaranteeHolds":          {Clusters: 4, Alone: true},
	"TestGuaranteeIsLocked":       {Clusters: 4, Alone: true},
	"TestHelloExpiry":             {Clusters: 4, Alone: true},
	"TestHomeFirst":               {Clusters: 4, Alone: true},
	"TestImageLocality":           {Clusters: 4, Alone: true},
	"TestLoopRefused":             {Clusters: 4, Alone: true},
	"TestNearestFirst":            {Clusters: 4, Alone: true},
	"TestNoLoop":                  {Alone: true},
	"TestNoRoomLetsGo":            {Alone: true},
	"TestPodOverridesPlacement":   {Clusters: 4, Alone: true},
	"TestPodWaitsForACluster":     {Clusters: 4, Alone: true},
	"TestPodWaitsForRoom":         {Clusters: 4, Alone: true},
	"TestPriceCeilingPolicy":      {Clusters: 4, Alone: true, Core: true},
	"TestTableShowsMeasurements":  {Clusters: 4, Alone: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
