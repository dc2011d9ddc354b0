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
)

// stories says what each story of this package needs.
var stories = framework.Stories{
	"TestCheapestFirst":      {Clusters: 4, Alone: true, Core: true},
	"TestHelloExpiry":        {Clusters: 4, Alone: true},
	"TestNearestFirst":       {Clusters: 4, Alone: true},
	"TestPriceCeilingPolicy": {Clusters: 4, Alone: true, Core: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
