package offload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// writeRequests writes down what the pod asks for without saying so, as the API server would: so a pod can be counted
// before it is made. Whoever asks for nothing asks for the least.
func writeRequests(spec *corev1.PodSpec, least corev1.ResourceList) {
	forEachContainer(spec, func(c *corev1.Container) {
		for name, limit := range c.Resources.Limits {
			if _, asked := c.Resources.Requests[name]; !asked {
				request(&c.Resources, name, limit)
			}
		}
	})
	if spec.Resources != nil {
		writePodRequests(spec)
	}
	for name, quantity := range least {
		atLeast(spec, name, quantity)
	}
}

// writePodRequests does the same for the pod as a whole, whose limit is its request unless a container has one.
func writePodRequests(spec *corev1.PodSpec) {
	for name, limit := range spec.Resources.Limits {
		_, asked := spec.Resources.Requests[name]
		forEachContainer(spec, func(c *corev1.Container) {
			_, has := c.Resources.Requests[name]
			asked = asked || has
		})
		if !asked {
			request(spec.Resources, name, limit)
		}
	}
}

// atLeast raises requests of nothing. Containers that share a request of their pod need none of their own: an explicit
// zero keeps the LimitRange of the namespace from giving them one.
func atLeast(spec *corev1.PodSpec, name corev1.ResourceName, least resource.Quantity) {
	if spec.Resources != nil {
		if shared, ok := spec.Resources.Requests[name]; ok {
			if shared.IsZero() {
				request(spec.Resources, name, within(spec.Resources.Limits, name, least))
			}
			least = resource.Quantity{}
		}
	}
	forEachContainer(spec, func(c *corev1.Container) {
		if asked, ok := c.Resources.Requests[name]; !ok || asked.IsZero() {
			request(&c.Resources, name, within(c.Resources.Limits, name, least))
		}
	})
}

// within returns the quantity, or the limit if that is lower. A limit of zero is none to the kernel, so it does not count
// here: the API server then refuses the pod, because it asks for more than its limit.
func within(limits corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) resource.Quantity {
	if limit, ok := limits[name]; ok && limit.Sign() > 0 && limit.Cmp(quantity) < 0 {
		return limit.DeepCopy()
	}
	return quantity.DeepCopy()
}

func request(resources *corev1.ResourceRequirements, name corev1.ResourceName, quantity resource.Quantity) {
	if resources.Requests == nil {
		resources.Requests = corev1.ResourceList{}
	}
	resources.Requests[name] = quantity.DeepCopy()
}
