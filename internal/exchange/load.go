package exchange

import corev1 "k8s.io/api/core/v1"

// Load returns what the schedulable physical nodes have, and what of it is free: see Capacity.
func (l *Ledger) Load() (allocatable, free corev1.ResourceList) {
	all, rest := amounts{}, amounts{}
	for _, node := range l.nodes {
		if schedulable(node) {
			all.add(usable(node))
			rest.add(l.room(node))
		}
	}
	return all.list(), rest.list()
}
