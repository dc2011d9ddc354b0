// SPDX-License-Identifier: Apache-2.0

package lifecycle

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
	"TestCheckFindsNothingWrong":     {Alone: true, With: []framework.Extra{framework.ControlPlane}},
	"TestCutIsSeenAndHealed":         {Alone: true, Core: true},
	"TestManagerAndKubeletRestart":   {Alone: true, Core: true},
	"TestPodCreatedWhileHanseIsDown": {Alone: true},
	"TestProviderDrainsItsNode":      {Alone: true},
	"TestRemoteDeletionIsRemade":     {Alone: true},
	"TestReplace":                    {Alone: true},
	"TestUninstallLeavesNothing":     {Alone: true, Last: true, Core: true},
	"TestUninstallRestoresNode":      {Clusters: 3, Workers: 2, Network: true, Alone: true, Last: true},
	"TestUnpeerDeletesDataIfAsked":   {Alone: true, With: []framework.Extra{framework.Storage}},
	"TestVersionSkew":                {Alone: true, With: []framework.Extra{framework.OtherVersions}},
	"TestWaitOutlivesEviction":       {Alone: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
