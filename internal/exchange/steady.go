package exchange

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// steadyPercent is how much more must be offered before more is shown.
const steadyPercent = 2

// Steady returns what a virtual node should show that has shown something else before, so that it does not change with
// every small move: what falls is lower at once, what rises by less than two percent stays as it is shown. It never shows
// more than is offered.
func Steady(shown, offered corev1.ResourceList) corev1.ResourceList {
	next := make(corev1.ResourceList, len(offered))
	for name, quantity := range offered {
		if before, known := shown[name]; known && risesLittle(before, quantity) {
			quantity = before
		}
		next[name] = quantity.DeepCopy()
	}
	return next
}

func risesLittle(shown, offered resource.Quantity) bool {
	rise, bound := offered.DeepCopy(), shown.DeepCopy()
	rise.Sub(shown)
	if rise.Sign() < 0 {
		return false
	}
	rise.Mul(100)
	bound.Mul(steadyPercent)
	return rise.Cmp(bound) < 0
}
