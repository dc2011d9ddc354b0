// SPDX-License-Identifier: Apache-2.0

package audit

// A Kind is objects of a kind in a namespace, or in all if it has none.
type Kind struct {
	Resource, Namespace string
}

// Lists is how often everything of a kind was asked for.
type Lists struct {
	Lists int // watches that first tell what is there already are among them
	Pages int // further pages of these lists
}

// CountLists counts the lists that a program has asked for.
func CountLists(requests []Request, agent string) map[Kind]Lists {
	counts := map[Kind]Lists{}
	for _, r := range requests {
		lists := r.Verb == list || r.All && r.Begins
		if r.Agent != agent || !lists {
			continue
		}
		kind := Kind{r.Resource, r.Namespace}
		count := counts[kind]
		if r.Page {
			count.Pages++
		} else {
			count.Lists++
		}
		counts[kind] = count
	}
	return counts
}

// Watches are the watches that are open.
type Watches map[string]Request // the request's id → the request

// Follow takes in what was logged since the last call.
func (w Watches) Follow(requests []Request) {
	for _, r := range requests {
		switch {
		case r.Verb != watch:
		case r.Begins:
			w[r.ID] = r
		default:
			delete(w, r.ID)
		}
	}
}

// Of returns how many watches a program has open.
func (w Watches) Of(agent string) int {
	count := 0
	for _, r := range w {
		if r.Agent == agent {
			count++
		}
	}
	return count
}
