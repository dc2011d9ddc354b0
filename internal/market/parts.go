// SPDX-License-Identifier: Apache-2.0

package market

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// A part is as many replicas of a component as run in one cluster.
type part struct {
	replicas int32
	only     *string // the peer that takes them, nil for any
}

// partsOf returns what of the component runs in one cluster each: all of it, or the share of each of its weights.
func (s *scene) partsOf(c *v1alpha1.ApplicationComponent, status *v1alpha1.ApplicationStatus) []part {
	if len(c.Weights) == 0 {
		return []part{{replicas: c.Replicas}}
	}
	able := slices.DeleteFunc(slices.Clone(c.Weights), func(w v1alpha1.ClusterWeight) bool { return s.leavesShare(c, w.Peer, status) != "" })
	if len(able) == 0 {
		able = c.Weights // they will be said to be unsuitable
	}
	return shares(able, c.Replicas)
}

// leavesShare says why the cluster leaves its share of the component to others; it is empty if it does not.
func (s *scene) leavesShare(c *v1alpha1.ApplicationComponent, peer string, status *v1alpha1.ApplicationStatus) string {
	return cmp.Or(s.isOut(peer, status), s.unfit[place{c.Name, peer}])
}

// isOut says why nothing new may be placed at the peer; it is empty if it may. What is there may yet wait for it.
func (s *scene) isOut(peer string, status *v1alpha1.ApplicationStatus) string {
	refused := slices.IndexFunc(status.Refusals, func(r v1alpha1.ApplicationRefusal) bool { return r.Peer == peer })
	_, cut := s.cutOff[peer]
	isThere := slices.ContainsFunc(status.Components, func(c v1alpha1.PlacedComponent) bool { return c.Peer == peer })
	switch {
	case s.gone[peer]:
		return "It is no peer any more"
	case refused >= 0:
		return status.Refusals[refused].Message
	case s.isReplaced(peer), cut && !isThere:
		return "It is cut off"
	default:
		return ""
	}
}

// withoutUnfit notes which clusters have no room for their shares, and reports whether it found any that it did not know of.
func (s *scene) withoutUnfit(job *exchange.Job, found *exchange.Assignment) (more bool) {
	for i := range job.Components {
		c := &job.Components[i]
		for j, why := range found.Why[i] {
			if at := (place{c.Name, job.Rows[j].Peer}); c.Only != nil && *c.Only == at.peer && why != "" && s.unfit[at] == "" {
				s.unfit[at], more = why, true
			}
		}
	}
	return more
}

// shares spreads the replicas over the clusters by their weights. What does not divide evenly goes to those with the largest remainders,
// among equals to the first. Clusters whose share is nothing are left out.
func shares(weights []v1alpha1.ClusterWeight, replicas int32) []part {
	var sum int64
	for _, w := range weights {
		sum += int64(w.Weight)
	}
	order, found, left := make([]int, len(weights)), make([]part, len(weights)), replicas
	for i := range weights {
		share := int64(replicas) * int64(weights[i].Weight) / sum
		order[i] = i
		found[i] = part{replicas: int32(share), only: &weights[i].Peer} //nolint:gosec // it is no more than replicas
		left -= found[i].replicas
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(int64(replicas)*int64(weights[j].Weight)%sum, int64(replicas)*int64(weights[i].Weight)%sum)
	})
	for _, i := range order[:left] {
		found[i].replicas++
	}
	return slices.DeleteFunc(found, func(p part) bool { return p.replicas == 0 })
}

// isWhole reports whether every part of the component has its place.
func (s *scene) isWhole(c *v1alpha1.ApplicationComponent, status *v1alpha1.ApplicationStatus) bool {
	placed := slices.DeleteFunc(slices.Clone(status.Components), func(at v1alpha1.PlacedComponent) bool { return at.Name != c.Name })
	wanted := s.partsOf(c, status)
	return len(placed) == len(wanted) && !slices.ContainsFunc(wanted, func(p part) bool {
		return !slices.ContainsFunc(placed, func(at v1alpha1.PlacedComponent) bool {
			return at.Replicas == p.replicas && (p.only == nil || *p.only == at.Peer)
		})
	})
}

// scale has a component that has other replicas by now stay where it is: there is another answer to ask for there. Where the user bounds
// prices the clusters are chosen anew.
//
// What was offered for other replicas counts no more in any case.
func (s *scene) scale(status *v1alpha1.ApplicationStatus) {
	if !s.isAsBefore() {
		return
	}
	for i := range s.app.Spec.Components {
		c := &s.app.Spec.Components[i]
		for j := range status.Components {
			at := &status.Components[j]
			if at.Name != c.Name || len(c.Weights) > 0 || at.Replicas == c.Replicas {
				continue
			}
			if status.Auction != nil {
				status.Auction.ExpirationTime, status.Auction.NextTime = metav1.NewTime(s.now), nil
			}
			if s.ceiling() == nil {
				at.Replicas = c.Replicas
			}
		}
	}
}

// hasOutgrown reports whether components ask for something else by now than was asked for where they are. It costs something else, too.
func (s *scene) hasOutgrown(status *v1alpha1.ApplicationStatus) bool {
	return slices.ContainsFunc(peersOf(status.Components), func(peer string) bool {
		return s.at[peer] != nil && !equality.Semantic.DeepEqual(s.at[peer].Spec.Components, s.components(peer, status))
	})
}

// peersOf are the peers at which components are, sorted.
func peersOf(components []v1alpha1.PlacedComponent) (peers []string) {
	for _, c := range components {
		if c.Peer != "" {
			peers = append(peers, c.Peer)
		}
	}
	return union(peers, nil)
}
