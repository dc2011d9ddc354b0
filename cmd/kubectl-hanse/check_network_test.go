// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestANetworkThatIsWantedAndDownIsAFailure(t *testing.T) {
	for reason, want := range map[string]state{
		v1alpha1.ReasonTunnelDown: stateFailed, v1alpha1.ReasonNoGateway: stateFailed, v1alpha1.ReasonNoEndpoint: stateFailed,
		v1alpha1.ReasonNoNetworkFabric: stateSkipped, v1alpha1.ReasonNoPeerGateway: stateSkipped,
	} {
		peer := newPeer("hamburg", v1alpha1.RoleProvider)
		setCondition(peer, v1alpha1.ConditionConnected, "False", reason, "")
		if got := stateOf((&snapshot{now: now}).checkPeer(peer), "hamburg: Connected"); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}
