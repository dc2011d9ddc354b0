// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"os"
	"testing"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The clusters of the stories.
var (
	lubeck  = framework.Lubeck
	hamburg = framework.Hamburg
)

// stories says what each story of this package needs.
var stories = framework.Stories{
	"TestExclusiveVolumeIsSteered":    {Clusters: 3, Workers: 2, Network: true},
	"TestGatesEndWithoutTheirManager": {Alone: true},
	"TestManyPodsMoveAtOnce":          {Alone: true},
	"TestMoveUnderLoad":               {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestMovesSurviveTheirManager":    {Alone: true},
	"TestPodMoves":                    {Core: true},
	"TestPodsAreSteered":              {},
	"TestPodsKeepTheirNames":          {},
	"TestPodsOfEachOwnerMove":         {},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
