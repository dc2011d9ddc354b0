// SPDX-License-Identifier: Apache-2.0

package security

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
	rostock = framework.Rostock
)

// stories says what each story of this package needs.
var stories = framework.Stories{
	"TestBrokenPeerStopsNobody":                 {With: []framework.Extra{framework.ControlPlane}},
	"TestClusterInTheMiddleThatLies":            {},
	"TestFloodingPeerHurtsNobody":               {Alone: true, With: []framework.Extra{framework.ControlPlane}},
	"TestHostileNetwork":                        {Clusters: 3, Workers: 2, Network: true, Alone: true, With: []framework.Extra{framework.ControlPlane}},
	"TestHostileProvider":                       {Alone: true, With: []framework.Extra{framework.ControlPlane}},
	"TestHostileReflection":                     {Clusters: 3, Workers: 2, Network: true},
	"TestPodWhoseRecordTheProviderHolds":        {Alone: true, With: []framework.Extra{framework.ControlPlane}},
	"TestProviderGetsNoSecretThatNoPodRefersTo": {Clusters: 3, Workers: 2, Network: true},
	"TestProviderThatLiesAboutAPod":             {Alone: true, With: []framework.Extra{framework.ControlPlane}},
	"TestSlowPeerHurtsNobody":                   {Alone: true, With: []framework.Extra{framework.ControlPlane}},
	"TestTenConsumersOneProvider":               {With: []framework.Extra{framework.Storage}},
	"TestTwoConsumersCannotSeeEachOther":        {Core: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
