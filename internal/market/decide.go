// SPDX-License-Identifier: Apache-2.0

package market

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	maxMessage    = 1024
	maxShort      = 256
	maxUnsuitable = 100
	maxRefusals   = 100
	maxParts      = 30 // as many as the status lists
	maxAsked      = 76 // with as many more as an application has components there are 100 at most
)

// decide returns what the status is to say now: where the components are, and what keeps them from their places.
func (s *scene) decide() (v1alpha1.ApplicationStatus, error) {
	status := *s.app.Status.DeepCopy()
	if !s.app.DeletionTimestamp.IsZero() {
		s.release(&status)
		return status, nil
	}
	status.Refusals = slices.DeleteFunc(status.Refusals, func(r v1alpha1.ApplicationRefusal) bool { return !r.Until.After(s.now) })
	status.Unsuitable = nil
	if s.placement == nil {
		status.Components, status.Phase = nil, v1alpha1.ApplicationUnplaced
		s.conclude(&status, v1alpha1.ReasonNotOffloaded,
			"The namespace is not offloaded: create a NamespaceOffloading in it, and its pods may go to other clusters")
		return status, nil
	}
	if s.missing != "" {
		status.Phase = v1alpha1.ApplicationUnplaced
		s.conclude(&status, v1alpha1.ReasonNoWorkload, s.missing)
		return status, nil
	}
	for _, peer := range peersOf(status.Components) {
		if why := s.lost(peer, &status); why != "" {
			s.refuse(&status, peer, why)
		}
	}
	s.scale(&status)
	if !s.isAssigned(&status) {
		reason, why, err := s.placeInTime(&status)
		if err != nil {
			return status, err
		}
		if why != "" {
			status.Phase = v1alpha1.ApplicationUnplaced
			s.conclude(&status, reason, why)
			return status, nil
		}
	}
	s.settle(&status)
	return status, nil
}

// placeInTime finds a place as place does, as long as the user wants one to be looked for.
func (s *scene) placeInTime(status *v1alpha1.ApplicationStatus) (reason, message string, err error) {
	if left := s.timeLeft(); left != nil && *left <= 0 {
		status.Unsuitable = s.app.Status.Unsuitable
		return v1alpha1.ReasonNotPlacedInTime, fmt.Sprintf("No place was found within %s: make spec.timeToLive longer to look on",
			s.app.Spec.TimeToLive.Duration), nil
	}
	return s.place(status)
}

// timeLeft is for how long a place is looked for yet, nil if for ever.
func (s *scene) timeLeft() *time.Duration {
	most := s.app.Spec.TimeToLive
	if most == nil {
		return nil
	}
	since := s.app.CreationTimestamp.Time
	if placed := meta.FindStatusCondition(s.app.Status.Conditions, v1alpha1.ConditionPlaced); placed != nil {
		if placed.Status == metav1.ConditionTrue {
			return nil
		}
		since = placed.LastTransitionTime.Time
	}
	left := since.Add(most.Duration).Sub(s.now)
	return &left
}

// isAssigned reports whether the components have the places that they are to have.
func (s *scene) isAssigned(status *v1alpha1.ApplicationStatus) bool {
	if !s.isAsBefore() || s.app.Status.Phase == v1alpha1.ApplicationUnplaced || s.ceiling() != nil && s.hasOutgrown(status) {
		return false
	}
	for i := range s.app.Spec.Components {
		if !s.isWhole(&s.app.Spec.Components[i], status) {
			return false
		}
	}
	return true
}

// isAsBefore reports whether the status speaks of the spec as it is now.
func (s *scene) isAsBefore() bool { return s.app.Status.ObservedGeneration == s.app.Generation }

// lost says why the components cannot count on the peer any more; it is empty if they can, or if that is not known yet.
func (s *scene) lost(peer string, status *v1alpha1.ApplicationStatus) string {
	request := cmp.Or(s.at[peer], s.relayed[peer])
	switch {
	case s.doubts[peer] != nil:
		return s.doubts[peer].Message
	case request != nil && isRefused(request):
		return "It refuses: " + messageOf(request)
	case s.gone[peer]:
		return "It is no peer any more"
	case s.unaccepted[peer] != "":
		return s.unaccepted[peer]
	case s.isReplaced(peer):
		return fmt.Sprintf("It has been cut off since %s", s.cutOff[peer].UTC().Format(time.RFC3339))
	case s.isLate(peer, status):
		return fmt.Sprintf("It has not answered within %s", answerTime)
	default:
		return ""
	}
}

// isRefused reports whether the provider has refused what the Request asks for now.
func isRefused(request *v1alpha1.Request) bool {
	return isAnswered(request) &&
		meta.IsStatusConditionFalse(request.Status.Conditions, v1alpha1.ConditionAcknowledged)
}

func messageOf(request *v1alpha1.Request) string {
	said := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAcknowledged)
	return cmp.Or(said.Message, said.Reason)
}

// isLate reports whether the peer has left a question unanswered for too long.
func (s *scene) isLate(peer string, status *v1alpha1.ApplicationStatus) bool {
	return slices.ContainsFunc(status.Components, func(c v1alpha1.PlacedComponent) bool {
		return c.Peer == peer && !c.Acknowledged && s.now.Sub(c.Since.Time) >= answerTime
	})
}

// refuse takes the components off the peer, which is not asked again for a while.
func (s *scene) refuse(status *v1alpha1.ApplicationStatus, peer, why string) {
	status.Components = slices.DeleteFunc(status.Components, func(c v1alpha1.PlacedComponent) bool { return c.Peer == peer })
	status.Refusals = slices.DeleteFunc(status.Refusals, func(r v1alpha1.ApplicationRefusal) bool { return r.Peer == peer })
	if len(status.Refusals) < maxRefusals {
		status.Refusals = append(status.Refusals, v1alpha1.ApplicationRefusal{
			Peer: peer, Message: sanitize.Text(why, maxShort), Until: metav1.NewTime(s.now.Add(refusalTime)),
		})
	}
}

// assign finds a place for every component, and says why there is none if so: then what was agreed before stays.
func (s *scene) assign(status *v1alpha1.ApplicationStatus) string {
	job := s.job(status)
	if len(job.Components) > maxParts {
		return fmt.Sprintf("It has %d components and shares of components: %d are placed at most", len(job.Components), maxParts)
	}
	found := exchange.Assign(job)
	for found.Rows == nil && s.withoutUnfit(&job, &found) {
		job = s.job(status)
		found = exchange.Assign(job)
	}
	if found.Rows == nil {
		status.Unsuitable = unsuitable(&job, &found)
		return s.whyUnplaced(&job, &found)
	}
	s.put(status, &job, &found)
	return ""
}

// put gives the components the places that were found.
func (s *scene) put(status *v1alpha1.ApplicationStatus, job *exchange.Job, found *exchange.Assignment) {
	before := status.Components
	status.Components = nil
	for i, row := range found.Rows {
		placed := v1alpha1.PlacedComponent{
			Name: job.Components[i].Name, Peer: job.Rows[row].Peer, Replicas: job.Components[i].Replicas,
			Price: found.PerHour[i], Since: metav1.NewTime(s.now),
		}
		if k := slices.IndexFunc(before, func(c v1alpha1.PlacedComponent) bool { return c.Name == placed.Name && c.Peer == placed.Peer }); k >= 0 {
			placed.Since = before[k].Since
		}
		status.Components = append(status.Components, placed)
	}
	status.AskedAt = union(status.AskedAt, peersOf(status.Components))
}

// job is what is to be placed, for the search.
func (s *scene) job(status *v1alpha1.ApplicationStatus) exchange.Job {
	job := exchange.Job{Rows: s.rows, Allowed: func(row *exchange.Row) string { return s.forbids(status, row) }}
	index := map[string][]int{} // component → its parts
	for i := range s.app.Spec.Components {
		c := &s.app.Spec.Components[i]
		for _, part := range s.partsOf(c, status) {
			index[c.Name] = append(index[c.Name], len(job.Components))
			asked := requested(c, part.replicas)
			job.Components = append(job.Components, exchange.Component{
				RequestedComponent: asked, Images: c.Images, MaxPrice: c.MaxPrice, Only: part.only,
			})
		}
	}
	asked := s.app.Spec.Placement
	if asked == nil {
		return job
	}
	for i := range job.Components {
		job.Components[i].Bounds = v1alpha1.Placement{MaxLatency: asked.MaxLatency, MinBandwidth: asked.MinBandwidth}
	}
	job.MaxPrice, job.Nearest = asked.MaxPrice, asked.Prefer == v1alpha1.PreferLatency
	job.Together, job.Apart = indexed(asked.Together, index), indexed(asked.Apart, index)
	for _, group := range indexed(asked.Talkative, index) {
		for i := range group {
			for _, j := range group[i+1:] {
				job.Talks = append(job.Talks, [2]int{group[i], j})
			}
		}
	}
	return job
}

func indexed(groups []v1alpha1.ComponentGroup, index map[string][]int) [][]int {
	var found [][]int
	for _, group := range groups {
		var members []int
		for _, name := range group.Components {
			members = append(members, index[name]...)
		}
		found = append(found, members)
	}
	return found
}

// forbids says why nothing of the application may be in the cluster of the row; it is empty if it may.
func (s *scene) forbids(status *v1alpha1.ApplicationStatus, row *exchange.Row) string {
	asked := s.app.Spec.Placement
	if asked == nil {
		asked = &v1alpha1.ApplicationPlacement{}
	}
	if row.Peer == "" {
		if s.placement.Strategy() == v1alpha1.StrategyRemote {
			return "The strategy of the namespace is Remote"
		}
		return ""
	}
	if why := s.isOut(row.Peer, status); why != "" {
		return why
	}
	switch {
	case slices.Contains(asked.Exclude, row.Peer):
		return "exclude in spec.placement names it"
	case len(asked.Clusters) > 0 && !slices.Contains(asked.Clusters, row.Peer):
		return "clusters in spec.placement does not name it"
	case s.placement.Strategy() == v1alpha1.StrategyLocal:
		return "The strategy of the namespace is Local"
	case len(status.AskedAt) >= maxAsked && !slices.Contains(status.AskedAt, row.Peer):
		return "Too many peers that may hold a Request of this application have not answered"
	case !s.reserves[row.Peer]:
		return "It runs no Hanse, and so reserves nothing"
	default:
		return s.forbidsNode(row)
	}
}

// forbidsNode says why no pod of the namespace may go to what stands for the cluster of the row, or would stand for it; it is empty if they may.
func (s *scene) forbidsNode(row *exchange.Row) string {
	if s.brokers[row.Peer] != "" {
		return s.placement.Forbids(&corev1.Pod{}, nodeOf(row))
	}
	return s.placement.Objection(v1alpha1.VirtualNodeName(row.Peer))
}

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}
