package advertisement

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/internal/exchange"
)

// locks is what is kept free for consumers: what each is guaranteed and does not hold yet. The sum of all is made once, so
// that what a thousand consumers are offered does not cost a million subtractions.
type locks struct {
	missing map[string]corev1.ResourceList // consumer → what is kept free for it
	total   corev1.ResourceList
}

func locksOf(capacity exchange.Capacity, guaranteed map[string]corev1.ResourceList) locks {
	l := locks{missing: make(map[string]corev1.ResourceList, len(guaranteed)), total: corev1.ResourceList{}}
	for peer, guarantee := range guaranteed {
		held, missing := capacity.Held(peer), corev1.ResourceList{}
		for name, quantity := range guarantee {
			lack, total := quantity.DeepCopy(), l.total[name]
			lack.Sub(held[name])
			if lack.Sign() <= 0 {
				continue
			}
			total.Add(lack)
			missing[name], l.total[name] = lack, total
		}
		l.missing[peer] = missing
	}
	return l
}

// against returns what is kept free for others than the peer, as of one that holds nothing.
func (l locks) against(peer string) map[string]corev1.ResourceList {
	if len(l.total) == 0 {
		return nil
	}
	rest := l.total.DeepCopy()
	for name, quantity := range l.missing[peer] {
		left := rest[name]
		left.Sub(quantity)
		rest[name] = left
	}
	return map[string]corev1.ResourceList{"": rest}
}
