// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"os"
	"testing"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The clusters of the stories.
var (
	lubeck  = framework.Lubeck
	hamburg = framework.Hamburg
	rostock = framework.Rostock
)

// stories says what each story of this package needs.
var stories = framework.Stories{
	"TestAgentlessPeer":     {With: []framework.Extra{framework.ControlPlane}, Core: true},
	"TestAgentlessRunsPods": {Alone: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
