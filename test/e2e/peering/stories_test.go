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
	"TestAWrongJoinChangesNothing":               {},
	"TestCordonAndDrainByTheProvider":            {Alone: true, Core: true},
	"TestDiscovery":                              {Clusters: 4, Alone: true},
	"TestInvitationExpires":                      {},
	"TestInvitationWorksOnce":                    {},
	"TestInviteJoinMutual":                       {Alone: true, Unpeered: true, Core: true},
	"TestInviteJoinOneSided":                     {Alone: true, Unpeered: true},
	"TestKeyThatEverybodyCanSignForIsNotLetIn":   {},
	"TestOutageOfBothAPIServers":                 {Clusters: 4, Alone: true},
	"TestPeerReturnsAfterForce":                  {Alone: true, Unpeered: true},
	"TestPeeringByObjectsOnly":                   {Alone: true, Unpeered: true},
	"TestProviderGetsAnotherAddressAndAuthority": {Alone: true},
	"TestRenewAfterOutage":                       {Alone: true},
	"TestSomebodyElseWithOurIDIsNotLetIn":        {},
	"TestSuspendedPeerMayNotEvenRead":            {},
	"TestTokenRenewal":                           {Alone: true},
	"TestUnpeerDeadPeer":                         {Alone: true, Unpeered: true},
	"TestUnpeerLeavesNothing":                    {Alone: true, Unpeered: true, Core: true},
	"TestUnpeerRevokes":                          {},
}

func TestMain(m *testing.M) { os.Exit(framework.Main(m, stories)) }
