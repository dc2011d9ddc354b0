// SPDX-License-Identifier: Apache-2.0

package reflection

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
	"TestConflict":                     {Clusters: 3, Workers: 2, Network: true},
	"TestGarbage":                      {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestIngressInTwoClusters":         {Clusters: 3, Workers: 2, Network: true, With: []framework.Extra{framework.IngressController}, Core: true},
	"TestIngressesAreReflected":        {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestListedKindsAreReflected":      {},
	"TestMultiClusterServices":         {Clusters: 3, Workers: 2, Network: true, Alone: true, With: []framework.Extra{framework.MultiClusterDNS}},
	"TestNoStaleEndpoints":             {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestProviderWithoutRoomForCopies": {Clusters: 3, Workers: 2, Network: true},
	"TestServicesAreReflected":         {Clusters: 3, Workers: 2, Network: true, Alone: true, Core: true},
	"TestServicesThatAreNotReflected":  {Clusters: 3, Workers: 2, Network: true},
	"TestSkipEveryKind":                {Clusters: 3, Workers: 2, Network: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
