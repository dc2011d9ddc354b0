// SPDX-License-Identifier: Apache-2.0

package peering

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
	"TestCordonAndDrainByTheProvider":            {Alone: true, Core: true},
	"TestDiscovery":                              {Clusters: 4, Alone: true},
	"TestInviteJoinMutual":                       {Alone: true, Unpeered: true, Core: true},
	"TestOutageOfBothAPIServers":                 {Clusters: 4, Alone: true},
	"TestProviderGetsAnotherAddressAndAuthority": {Alone: true},
	"TestRenewAfterOutage":                       {Alone: true},
	"TestSuspendedPeerMayNotEvenRead":            {},
	"TestTokenRenewal":                           {Alone: true},
	"TestUnpeerLeavesNothing":                    {Alone: true, Unpeered: true, Core: true},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
