// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestAGatewayGoesOnUntilTheNextOneHasThePeers(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	type seen struct {
		after    time.Duration
		next     bool
		received int64
	}
	for name, test := range map[string]struct {
		seen []seen
		want []bool // whether it is over
	}{
		"there is no other one": {
			[]seen{{0, false, 5}, {handOverTimeout - 1, false, 5}, {handOverTimeout, false, 5}},
			[]bool{false, false, true},
		},
		"peers move to the next one": {
			[]seen{{0, false, 5}, {300 * time.Millisecond, true, 7}, {600 * time.Millisecond, true, 8}, {1100 * time.Millisecond, true, 8}, {1101 * time.Millisecond, true, 8}},
			[]bool{false, false, false, false, true},
		},
		"a peer that only dials stays": {
			[]seen{{0, true, 5}, {500 * time.Millisecond, true, 6}, {900 * time.Millisecond, true, 7}, {lingerFor, true, 8}},
			[]bool{false, false, false, true},
		},
		"the API server does not say for a moment": {
			[]seen{{0, true, 5}, {500 * time.Millisecond, false, 6}, {lingerFor, false, 7}},
			[]bool{false, false, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandover(now)
			var got []bool
			for _, s := range test.seen {
				got = append(got, h.over(now.Add(s.after), s.next, s.received))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("over (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnActiveGatewayHandsOverToTheOneThatNodesAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t)
		s.activate()
		s.mustStep(0)
		s.gateway.config.Clock = clock.RealClock{} // that of the bubble
		const announced = 2 * time.Second
		time.AfterFunc(announced, func() {
			testkit.Change(s.Home, "hanse-system-network", "hanse-gateway", func(c *corev1.ConfigMap) {
				c.Data["active"] = `{"pod":"gateway-2","node":"n2","addresses":["10.244.2.3"]}`
			})
		})
		began := time.Now()
		s.gateway.handOver(t.Context())
		if took := time.Since(began); took < announced || took >= handOverTimeout || s.plane.removed != 0 {
			t.Errorf("it took %v; the tunnels were removed %d times", took, s.plane.removed)
		}
	})
}

func TestAStandbyHasNothingToHandOver(t *testing.T) {
	s := newStory(t)
	s.gateway.handOver(s.Context())
}
