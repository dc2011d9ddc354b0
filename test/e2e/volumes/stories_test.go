// SPDX-License-Identifier: Apache-2.0

package volumes

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
	"TestPodWithClaimOfAnotherClassStaysHome": {With: []framework.Extra{framework.Storage}},
	"TestVolumeBeginsWithSnapshot":            {With: []framework.Extra{framework.Snapshots}},
	"TestVolumesFollowPods":                   {With: []framework.Extra{framework.Storage}, Core: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
