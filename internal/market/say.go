// SPDX-License-Identifier: Apache-2.0

package market

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// release says what an application that is deleted waits for: peers that cannot be told that what they have reserved is free.
func (s *scene) release(status *v1alpha1.ApplicationStatus) {
	silent := slices.DeleteFunc(slices.Clone(status.AskedAt), func(peer string) bool { return s.heard[peer] })
	if len(silent) == 0 {
		return
	}
	status.Components, status.Phase = nil, v1alpha1.ApplicationReleased
	s.conclude(status, v1alpha1.ReasonReleased, fmt.Sprintf("%s cannot be told yet that it is released. If they stay cut off, what they have reserved is free at %s",
		strings.Join(silent, ", "), s.app.DeletionTimestamp.Add(v1alpha1.ReservationTime).UTC().Format(time.RFC3339)))
}

// settle notes who has acknowledged, and what it costs.
func (s *scene) settle(status *v1alpha1.ApplicationStatus) {
	var waiting []string
	for i := range status.Components {
		c := &status.Components[i]
		c.ReadyReplicas, c.LostSince = s.ready[place{c.Name, c.Peer}], nil
		if since, cut := s.cutOff[c.Peer]; cut {
			c.LostSince = &metav1.Time{Time: since}
		}
		c.Acknowledged = c.Peer == "" || s.isAcknowledged(c.Peer, status)
		if !c.Acknowledged && s.wasAcknowledged(c.Peer) { // it is asked again: for more, or since the Request is gone or has expired
			c.Since = metav1.NewTime(s.now)
		}
		if !c.Acknowledged && !slices.Contains(waiting, c.Peer) {
			waiting = append(waiting, c.Peer)
		}
	}
	if len(waiting) > 0 {
		status.Phase = v1alpha1.ApplicationRequested
		s.conclude(status, v1alpha1.ReasonRequested, "Waiting for the answer of "+strings.Join(waiting, ", "))
		return
	}
	status.Phase = v1alpha1.ApplicationPlaced
	if status.Auction != nil {
		status.Auction.NextTime = nil // should this place be lost, none of it was looked for in vain
	}
	s.conclude(status, v1alpha1.ReasonPlaced, strings.Join(append([]string{"Every component has its room"}, s.remarks(status)...), ". "))
}

// remarks are what a user of a placed application should know: which of its clusters are cut off, and which leave their share to others.
func (s *scene) remarks(status *v1alpha1.ApplicationStatus) (remarks []string) {
	for _, c := range status.Components {
		switch asked := s.app.Spec.Placement; {
		case c.LostSince == nil:
		case asked != nil && asked.ReplaceAfter != nil:
			remarks = append(remarks, fmt.Sprintf("%s, which runs %s, is cut off since %s, and placed elsewhere after %s",
				c.Peer, c.Name, c.LostSince.UTC().Format(time.RFC3339), asked.ReplaceAfter.Duration))
		default:
			remarks = append(remarks, fmt.Sprintf("%s, which runs %s, is cut off since %s: to have it placed elsewhere set replaceAfter in spec.placement",
				c.Peer, c.Name, c.LostSince.UTC().Format(time.RFC3339)))
		}
	}
	for i := range s.app.Spec.Components {
		c := &s.app.Spec.Components[i]
		for _, w := range c.Weights {
			if why := s.leavesShare(c, w.Peer, status); why != "" {
				remarks = append(remarks, fmt.Sprintf("%s takes no share of %s: %s", cmp.Or(w.Peer, "This cluster"), c.Name, why))
			}
		}
	}
	return remarks
}

// conclude sets the conditions by the phase.
func (s *scene) conclude(status *v1alpha1.ApplicationStatus, reason, message string) {
	state := metav1.ConditionFalse
	if status.Phase == v1alpha1.ApplicationPlaced {
		state = metav1.ConditionTrue
	}
	status.ObservedGeneration, status.Where, status.Price = s.app.Generation, where(status.Components), total(status.Components)
	for _, kind := range []string{v1alpha1.ConditionPlaced, v1alpha1.ConditionReady} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: state, Reason: reason, Message: sanitize.Text(message, maxMessage),
			ObservedGeneration: s.app.Generation, LastTransitionTime: metav1.NewTime(s.now),
		})
	}
}

// total is what the components cost together. All of them are paid in one currency.
func total(components []v1alpha1.PlacedComponent) *v1alpha1.Price {
	var prices []*v1alpha1.Price
	for i := range components {
		prices = append(prices, components[i].Price)
	}
	return exchange.Sum(prices)
}

// where says in words where the components are, and how many of each if it is in several clusters.
func where(components []v1alpha1.PlacedComponent) string {
	parts := map[string]int{}
	for _, c := range components {
		parts[c.Name]++
	}
	var words []string
	for _, c := range components {
		what, place := c.Name, "here"
		if parts[c.Name] > 1 {
			what = fmt.Sprintf("%s %d", c.Name, c.Replicas)
		}
		if c.Peer != "" {
			place = "at " + c.Peer
		}
		words = append(words, what+" "+place)
	}
	return strings.Join(words, ", ")
}

// unsuitable says of each component why it does not fit where.
func unsuitable(job *exchange.Job, found *exchange.Assignment) []v1alpha1.UnsuitableCluster {
	var all []v1alpha1.UnsuitableCluster
	for i, why := range found.Why {
		for j, text := range why {
			if text != "" && len(all) < maxUnsuitable {
				all = append(all, v1alpha1.UnsuitableCluster{
					Component: job.Components[i].Name, Peer: job.Rows[j].Peer, Message: sanitize.Text(text, maxShort),
				})
			}
		}
	}
	return all
}

// whyUnplaced names the components that fit nowhere, or says that they do not fit all together.
func (s *scene) whyUnplaced(job *exchange.Job, found *exchange.Assignment) string {
	var homeless []string
	for i, why := range found.Why {
		if !slices.Contains(why, "") {
			homeless = append(homeless, job.Components[i].Name)
		}
	}
	if len(homeless) == 0 {
		return "Each component fits somewhere, but no set of clusters takes all of them under spec.placement"
	}
	return fmt.Sprintf("No cluster takes %s: status.unsuitable says why", strings.Join(homeless, ", "))
}
