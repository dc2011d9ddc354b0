package advertisement

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// However fast pods come and go, each consumer is written to once per interval at most, and the policies are asked once
// for each message.
func TestChurnCostsOneWritePerConsumerAndInterval(t *testing.T) {
	const consumers, seconds = 50, 20
	w := newWorld(t)
	w.node("a", "1000")
	w.policies.say(policy.Outgoing, policy.Decision{Outcome: policy.Allow}, nil)
	var requests []ctrl.Request
	for i := range consumers {
		name := fmt.Sprint("peer-", i)
		w.second(name, nil)
		requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	round := func() {
		for _, request := range requests {
			if _, err := w.publisher.Reconcile(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
	}
	round()
	w.expect(int64(2*consumers), w.writes.Load()) // the Peers, and one offer for each
	before := w.writes.Load()
	for second := range seconds {
		for i := range 100 {
			w.pod(fmt.Sprint("pod-", i), "", fmt.Sprint(1+(second+i)%9))
		}
		round()
		w.clock.Step(500 * time.Millisecond)
		round()
		w.clock.Step(500 * time.Millisecond)
	}
	written := w.writes.Load() - before
	if most := int64(consumers * seconds / 2); written == 0 || written > most {
		t.Errorf("%d writes, at most %d are wanted", written, most)
	}
	w.expect(int(written)+consumers, w.asked())
}

// What it costs that a consumer is looked at to whom nothing is due, where all of a thousand have a guarantee.
func BenchmarkConsumerToWhomNothingIsDue(b *testing.B) {
	for _, guaranteed := range []int{0, 10, 1000} {
		b.Run(fmt.Sprint(guaranteed, " guarantees"), func(b *testing.B) {
			config := Config{ClusterID: here, Namespace: "hanse-system"}
			config.Default()
			w := &world{clock: clocktesting.NewFakeClock(start)}
			w.home = w.cluster()
			w.publisher = NewPublisher(config, w.home, nil, &fakePolicies{}, w.clock, events.NewFakeRecorder(1))
			w.node("a", "1000")
			for i := range guaranteed {
				ad := &v1alpha1.Advertisement{}
				ad.Namespace, ad.Name = v1alpha1.TenantNamespace(fmt.Sprint("peer-", i)), here
				ad.Spec.Guarantee = resources("cpu", "1", "memory", "1Gi")
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
