package exchange

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// maxNames is how many resources an advertisement can name.
const maxNames = 64

// mandatory are the resources that every advertisement names, also when there is nothing of them.
//
// A provider whose nodes do not count ephemeral-storage (their kubelets run without local storage isolation) offers 0
// of it: its scheduler places no pod that asks for any there, so neither may ours. Pods that ask for none fit.
var mandatory = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
}

// amounts is a list of resources in the units that the scheduler calculates in: thousandths of cores, and whole bytes,
// pods and devices of all else.
type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, quantity := range list {
		a[name] = amountOf(name, quantity)
	}
	return a
}

// amountOf never exceeds what an advertisement may say, so that the absurd request of one pod cannot overflow a sum.
func amountOf(name corev1.ResourceName, quantity resource.Quantity) int64 {
	if quantity.Sign() <= 0 {
		return 0
	}
	if most := MaxQuantity(name); quantity.Cmp(most) > 0 {
		quantity = most
	}
	if name == corev1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

func requestsOf(pod *corev1.Pod) amounts {
	a := amountsOf(helpers.PodRequests(pod, helpers.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}))
	a[corev1.ResourcePods] = 1
	return a
}

func (a amounts) add(b amounts) {
	for name, amount := range b {
		if a[name] > math.MaxInt64-amount {
			a[name] = math.MaxInt64
			continue
		}
		a[name] += amount
	}
}

// subtract stops at zero.
func (a amounts) subtract(b amounts) {
	for name := range a {
		a[name] = max(0, a[name]-b[name])
	}
}

// list has the mandatory resources in any case, and at most maxNames.
func (a amounts) list() corev1.ResourceList {
	list := make(corev1.ResourceList, len(a)+len(mandatory))
	for _, name := range mandatory {
		list[name] = quantityOf(name, a[name])
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if len(list) == maxNames {
			break
		}
		list[name] = quantityOf(name, a[name])
	}
	return list
}

func quantityOf(name corev1.ResourceName, amount int64) resource.Quantity {
	most := MaxQuantity(name)
	switch {
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(min(amount, most.MilliValue()), resource.DecimalSI)
	case isBytes(name):
		return *resource.NewQuantity(min(amount, most.Value()), resource.BinarySI)
	default:
		return *resource.NewQuantity(min(amount, most.Value()), resource.DecimalSI)
	}
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// MaxQuantity is the largest amount of a resource that an advertisement may name: 10^8 cores, and 2^53 of all else (8
// PiB of memory), which is beyond any cluster and far enough from where 64-bit arithmetic in thousandths overflows.
func MaxQuantity(name corev1.ResourceName) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewQuantity(1e8, resource.DecimalSI)
	}
	return *resource.NewQuantity(1<<53, resource.BinarySI)
}
