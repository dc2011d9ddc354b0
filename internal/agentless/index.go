package agentless

import "k8s.io/apimachinery/pkg/types"

// A place is where an object lies at the peer.
type place struct {
	kind kind
	types.NamespacedName
}

// kind is one of those that we watch.
type kind int

const (
	replicaSets kind = iota
	jobs
	pods
)

// An index knows which objects at the peer there are for each home pod.
type index struct {
	of     map[types.NamespacedName]map[place]bool // home pod → its objects
	homeOf map[place]types.NamespacedName
}

func newIndex() index {
	return index{of: map[types.NamespacedName]map[place]bool{}, homeOf: map[place]types.NamespacedName{}}
}

// put enters an object that is for that home pod, and returns the one that it was for before, if it was another.
func (i index) put(at place, home types.NamespacedName) (before types.NamespacedName, moved bool) {
	before, known := i.homeOf[at]
	if known && before == home {
		return before, false
	}
	i.remove(at)
	if i.of[home] == nil {
		i.of[home] = map[place]bool{}
	}
	i.of[home][at] = true
	i.homeOf[at] = home
	return before, known
}

// remove takes an object out, and returns the home pod that it was for.
func (i index) remove(at place) (home types.NamespacedName, known bool) {
	home, known = i.homeOf[at]
	if !known {
		return home, false
	}
	delete(i.homeOf, at)
	delete(i.of[home], at)
	if len(i.of[home]) == 0 {
		delete(i.of, home)
	}
	return home, true
}
