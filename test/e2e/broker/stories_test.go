// SPDX-License-Identifier: Apache-2.0

package broker

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
	"TestBrokerMakesMembersKnown": {Clusters: 4, Alone: true},
	"TestBrokerOutboundOnly":      {Clusters: 4, Alone: true},
	"TestBrokerRelaysAuction":     {Clusters: 4, Alone: true, Core: true},
	"TestBrokerRelaysRequest":     {Clusters: 4, Alone: true},
	"TestHandOverOutlivesBroker":  {Clusters: 4, Alone: true},
	"TestHostileBroker":           {Clusters: 4, Alone: true},
	"TestLeaveBroker":             {Clusters: 4, Alone: true},
	"TestTwoBrokers":              {Clusters: 4, Alone: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
