package exchange

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Orders of rows, by what the first one has.
const (
	OrderPrice   = "price"   // the lowest price of a pod of DefaultRequest
	OrderLatency = "latency" // the shortest round trip; what was not measured comes last
	OrderCPU     = "cpu"     // the most free cores
)

// By returns how two rows compare in the order of that name. Rows that are equal in it come by cluster id.
func By(order string) (func(a, b Row) int, error) {
	compare, known := map[string]func(a, b *Row) int{
		OrderPrice:   byPrice,
		OrderLatency: func(a, b *Row) int { return nearer(a.RoundTrip, b.RoundTrip) },
		OrderCPU:     byCPU,
	}[order]
	if !known {
		return nil, fmt.Errorf("%s is no order: use %s, %s or %s", quoted(order), OrderPrice, OrderLatency, OrderCPU)
	}
	return func(a, b Row) int { return cmp.Or(compare(&a, &b), cmp.Compare(a.ClusterID, b.ClusterID)) }, nil
}

// DefaultRequest is the pod by which offers are compared where none is named: one core and 1Gi of memory.
func DefaultRequest() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(1, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(1<<30, resource.BinarySI),
	}
}

func byPrice(a, b *Row) int {
	return Cheaper(a.PricePerHour(DefaultRequest()), b.PricePerHour(DefaultRequest()))
}

func byCPU(a, b *Row) int {
	free := Offered(&b.Offer)[corev1.ResourceCPU]
	return free.Cmp(Offered(&a.Offer)[corev1.ResourceCPU])
}
