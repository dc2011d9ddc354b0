// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"fmt"
	"testing"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// However fast pods come and go, each consumer is written to once per interval at most, and the policies are asked once
// for each message.
func TestChurnCostsOneWritePerConsumerAndInterval(t *testing.T) {
	const consumers, seconds = 50, 20
	w := newWorld(t)
	w.node("a", "1000")
	w.policies.say(policy.Outgoing, policy.Decision{Outcome: policy.Allow}, nil)
	for i := range consumers {
		w.second(fmt.Sprint("peer-", i), nil)
	}
	round := func() {
		t.Helper()
		for i := range consumers {
			w.Reconcile(w.publisher, "", fmt.Sprint("peer-", i))
		}
	}
	round()
	w.expect(consumers, len(w.wrote())) // one offer for each
	for second := range seconds {
		for i := range 100 {
			w.pod(fmt.Sprint("pod-", i), "", fmt.Sprint(1+(second+i)%9))
		}
		round()
		w.Clock.Step(500 * time.Millisecond)
		round()
		w.Clock.Step(500 * time.Millisecond)
	}
	written := len(w.wrote())
	if most := consumers * seconds / 2; written == 0 || written > most {
		t.Errorf("%d writes, at most %d are wanted", written, most)
	}
	w.expect(written+consumers, w.asked())
}

// What it costs that a consumer is looked at to whom nothing is due, where all of a thousand have a guarantee.
func BenchmarkConsumerToWhomNothingIsDue(b *testing.B) {
	for _, guaranteed := range []int{0, 10, 1000} {
		b.Run(fmt.Sprint(guaranteed, " guarantees"), func(b *testing.B) {
			config := Config{ClusterID: here, Namespace: "hanse-system"}
			config.Default()
			w := &world{World: testkit.NewWorld(b)}
			w.publisher = NewPublisher(config, w.Home.Client, nil, &fakePolicies{}, w.Clock, w.Events)
			w.node("a", "1000")
			for i := range guaranteed {
				ad := &v1alpha1.Advertisement{}
				ad.Namespace, ad.Name = v1alpha1.TenantNamespace(fmt.Sprint("peer-", i)), here
				ad.Spec.Guarantee = testkit.Quantities("cpu", "1", "memory", "1Gi")
				ad.Status.Acknowledgement = &v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted}
				w.publisher.capacity.take(ad, false)
			}
			peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ClusterID: "peer-1", Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer}}}
			peer.Name = "peer-1"
			speak := func(said *v1alpha1.Advertisement) {
				if _, err := w.publisher.publish(b.Context(), peer, said); err != nil {
					b.Fatal(err)
				}
			}
			speak(nil)
			said, err := w.publisher.published(b.Context(), peer)
			if err != nil || said == nil {
				b.Fatalf("%v, %v", said, err)
			}
			for b.Loop() {
				speak(said)
			}
		})
	}
}
