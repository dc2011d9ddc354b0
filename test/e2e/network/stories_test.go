// SPDX-License-Identifier: Apache-2.0

package network

import (
	"os"
	"testing"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The clusters of the stories.
var (
	lubeck    = framework.Lubeck
	hamburg   = framework.Hamburg
	bremen    = framework.Bremen
	visby     = framework.Visby
	stade     = framework.Stade
	stralsund = framework.Stralsund
)

// stories says what each story of this package needs.
var stories = framework.Stories{
	"TestBothBehindNAT":                 {Clusters: 3, Workers: 2, Network: true, Alone: true, With: []framework.Extra{framework.ClusterBehindNAT}},
	"TestBothRestart":                   {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestDNSMeansHome":                  {Clusters: 3, Workers: 2, Network: true, Core: true},
	"TestGatewayCutOffFromItsAPIServer": {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestGatewayFailover":               {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestGatewayKilledRepeatedly":       {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestHomeAPIFromRemotePod":          {Clusters: 3, Workers: 2, Network: true, Core: true},
	"TestIPv6":                          {IPv6: true, Network: true},
	"TestIsolationByDefault":            {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestKeyRotationNoLoss":             {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestLeafToLeaf":                    {Clusters: 3, Workers: 2, Network: true},
	"TestLeafToLeafDirect":              {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestLossAndDelay":                  {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestMTU":                           {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestNoPlaintext":                   {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestNodeReboots":                   {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestPeerBehindNAT":                 {Clusters: 3, Workers: 2, Network: true, Alone: true, With: []framework.Extra{framework.ClusterBehindNAT}},
	"TestPodToPodBothWays":              {Clusters: 3, Workers: 2, Network: true, Core: true},
	"TestRemoteServerReviewsTokens":     {Clusters: 3, Workers: 2, Network: true},
	"TestServiceAcrossClusters":         {Clusters: 3, Workers: 2, Network: true, Core: true},
	"TestSpoofedSourceDropped":          {Clusters: 3, Workers: 2, Network: true, Alone: true},
	"TestTenantsApart":                  {Clusters: 3, Workers: 2, Network: true},
	"TestTokenCanBeLeftAtHome":          {Clusters: 3, Workers: 2, Network: true},
	"TestTokenOfRemotePodLivesAsAtHome": {Clusters: 3, Workers: 2, Network: true},
	"TestTwoHopsRoute":                  {Clusters: 3, Workers: 2, Network: true, Alone: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
