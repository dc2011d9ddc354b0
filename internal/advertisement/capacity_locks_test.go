package advertisement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/internal/exchange"
)

// The sum that is made once for all says the same as what is computed for each.
func TestLocksAreTheSumOfTheGuarantees(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		w := &world{T: t}
		config := Config{ClusterID: here}
		w.publisher = &Publisher{config: config, capacity: newCapacity(&config, nil)}
		w.node("a", fmt.Sprint(1+random.IntN(10)))
		guaranteed := map[string]corev1.ResourceList{}
		for i := range 3 {
			peer := fmt.Sprint("peer-", i)
			guaranteed[peer] = corev1.ResourceList{
				corev1.ResourceCPU:                     *resource.NewMilliQuantity(random.Int64N(4000), resource.DecimalSI),
				corev1.ResourceName("example.com/gpu"): *resource.NewQuantity(random.Int64N(2), resource.DecimalSI),
			}
			w.pod(fmt.Sprint("pod-", i), peer, fmt.Sprintf("%dm", random.IntN(4000)))
		}
		delete(guaranteed, "peer-2")
		capacity := w.publisher.capacity.look().Capacity
		locks := locksOf(capacity, guaranteed)
		for i := range 4 {
			peer := fmt.Sprint("peer-", i)
			want := capacity.Availability(peer, exchange.Claims{Guarantee: guaranteed[peer], Others: guaranteed})
			got := capacity.Availability(peer, exchange.Claims{Guarantee: guaranteed[peer], Others: locks.against(peer)})
			if !equality.Semantic.DeepEqual(want, got) {
				t.Fatalf("%s is offered %v, want %v", peer, got, want)
			}
		}
	}
}
