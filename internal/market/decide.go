package market

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	maxMessage    = 1024
	maxShort      = 256
	maxUnsuitable = 100
	maxRefusals   = 100
	maxAsked      = 76 // with as many more as an application has components there are 100 at most
)

// decide returns what the status is to say now: where the components are, and what keeps them from their places.
func (s *scene) decide() (v1alpha1.ApplicationStatus, error) {
	status := *s.app.Status.DeepCopy()
	status.Refusals = slices.DeleteFunc(status.Refusals, func(r v1alpha1.ApplicationRefusal) bool { return !r.Until.After(s.now) })
	status.Unsuitable = nil
	if s.placement == nil {
		status.Components, status.Phase = nil, v1alpha1.ApplicationUnplaced
		s.conclude(&status, v1alpha1.ReasonNotOffloaded,
			"The namespace is not offloaded: create a NamespaceOffloading in it, and its pods may go to other clusters")
		return status, nil
	}
	for peer, names := range placedAt(status.Components) {
		if why := s.lost(peer, names, &status); why != "" {
			s.refuse(&status, peer, why)
		}
	}
	if !s.isAssigned(&status) {
		if err := s.look(); err != nil {
			return status, err
		}
		if why := s.assign(&status); why != "" {
			status.Phase = v1alpha1.ApplicationUnplaced
			s.conclude(&status, v1alpha1.ReasonNoClusterFits, why)
			return status, nil
		}
	}
	s.settle(&status)
	return status, nil
}

// isAssigned reports whether the components have the places that they are to have.
func (s *scene) isAssigned(status *v1alpha1.ApplicationStatus) bool {
	return s.isAsBefore() && s.app.Status.Phase != v1alpha1.ApplicationUnplaced &&
		len(status.Components) == len(s.app.Spec.Components)
}

// isAsBefore reports whether the status speaks of the spec as it is now.
func (s *scene) isAsBefore() bool { return s.app.Status.ObservedGeneration == s.app.Generation }

// lost says why the components cannot count on the peer any more; it is empty if they can, or if that is not known yet.
func (s *scene) lost(peer string, names []string, status *v1alpha1.ApplicationStatus) string {
	request := s.at[peer]
	switch {
	case request != nil && isRefused(request):
		return "It refuses: " + messageOf(request)
	case s.isLate(names, status):
		return fmt.Sprintf("It has not answered within %s", answerTime)
	default:
		return ""
	}
}

// isRefused reports whether the provider has refused, for good, what the Request asks for now. One that has expired it may take again.
func isRefused(request *v1alpha1.Request) bool {
	return request.Status.ObservedGeneration == request.Generation && request.Status.Phase != v1alpha1.RequestExpired &&
		meta.IsStatusConditionFalse(request.Status.Conditions, v1alpha1.ConditionAcknowledged)
}

func messageOf(request *v1alpha1.Request) string {
	said := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAcknowledged)
	return cmp.Or(said.Message, said.Reason)
}

// isLate reports whether one of the components waits for an answer for too long.
func (s *scene) isLate(names []string, status *v1alpha1.ApplicationStatus) bool {
	return slices.ContainsFunc(status.Components, func(c v1alpha1.PlacedComponent) bool {
		return slices.Contains(names, c.Name) && !c.Acknowledged && s.now.Sub(c.Since.Time) >= answerTime
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
	found := exchange.Assign(job)
	if found.Rows == nil {
		status.Unsuitable = unsuitable(&job, &found)
		return s.whyUnplaced(&job, &found)
	}
	before := status.Components
	status.Components = nil
	for i, row := range found.Rows {
		placed := v1alpha1.PlacedComponent{
			Name: job.Components[i].Name, Peer: job.Rows[row].Peer, Price: found.PerHour[i], Since: metav1.NewTime(s.now),
		}
		if k := slices.IndexFunc(before, func(c v1alpha1.PlacedComponent) bool { return c.Name == placed.Name }); k >= 0 && before[k].Peer == placed.Peer {
			placed.Since = before[k].Since
		}
		status.Components = append(status.Components, placed)
	}
	status.AskedAt = union(status.AskedAt, sortedKeys(placedAt(status.Components)))
	return ""
}

// job is what is to be placed, for the search.
func (s *scene) job(status *v1alpha1.ApplicationStatus) exchange.Job {
	job := exchange.Job{Rows: s.rows, Allowed: func(row *exchange.Row) string { return s.forbids(status, row) }}
	index := map[string]int{}
	for i := range s.app.Spec.Components {
		c := &s.app.Spec.Components[i]
		index[c.Name] = i
		job.Components = append(job.Components, exchange.Component{RequestedComponent: requested(c), Images: c.Images, MaxPrice: c.MaxPrice})
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

func indexed(groups []v1alpha1.ComponentGroup, index map[string]int) [][]int {
	var found [][]int
	for _, group := range groups {
		var members []int
		for _, name := range group.Components {
			members = append(members, index[name])
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
	refused := slices.IndexFunc(status.Refusals, func(r v1alpha1.ApplicationRefusal) bool { return r.Peer == row.Peer })
	switch {
	case slices.Contains(asked.Exclude, row.Peer):
		return "exclude in spec.placement names it"
	case len(asked.Clusters) > 0 && !slices.Contains(asked.Clusters, row.Peer):
		return "clusters in spec.placement does not name it"
	case s.placement.Strategy() == v1alpha1.StrategyLocal:
		return "The strategy of the namespace is Local"
	case refused >= 0:
		return status.Refusals[refused].Message
	case len(status.AskedAt) >= maxAsked && !slices.Contains(status.AskedAt, row.Peer):
		return "Too many peers that may hold a Request of this application have not answered"
	case !s.reserves[row.Peer]:
		return "It runs no Hanse, and so reserves nothing"
	default:
		return s.placement.Objection(v1alpha1.VirtualNodeName(row.Peer))
	}
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

// settle notes who has acknowledged, and what it costs.
func (s *scene) settle(status *v1alpha1.ApplicationStatus) {
	var waiting []string
	for i := range status.Components {
		c := &status.Components[i]
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
	s.conclude(status, v1alpha1.ReasonPlaced, "Every component has its room")
}

// total is what the components cost together. All of them are paid in one currency.
func total(components []v1alpha1.PlacedComponent) *v1alpha1.Price {
	var sum *v1alpha1.Price
	for i := range components {
		switch price := components[i].Price; {
		case price == nil:
		case sum == nil:
			sum = price.DeepCopy()
		default:
			sum.Amount.Add(price.Amount)
		}
	}
	return sum
}

// isAcknowledged reports whether the peer has reserved what it is to run.
func (s *scene) isAcknowledged(peer string, status *v1alpha1.ApplicationStatus) bool {
	request := s.at[peer]
	if request == nil {
		return !s.heard[peer] && s.isAsBefore() && s.wasAcknowledged(peer) // it is not known otherwise
	}
	return request.Status.Phase == v1alpha1.RequestAcknowledged && request.Status.ObservedGeneration == request.Generation &&
		equality.Semantic.DeepEqual(request.Spec.Components, s.components(peer, status))
}

func (s *scene) wasAcknowledged(peer string) bool {
	return slices.ContainsFunc(s.app.Status.Components, func(c v1alpha1.PlacedComponent) bool { return c.Peer == peer && c.Acknowledged })
}

// components are what is asked for at the peer.
func (s *scene) components(peer string, status *v1alpha1.ApplicationStatus) []v1alpha1.RequestedComponent {
	names := placedAt(status.Components)[peer]
	var found []v1alpha1.RequestedComponent
	for i := range s.app.Spec.Components {
		if c := &s.app.Spec.Components[i]; slices.Contains(names, c.Name) {
			found = append(found, requested(c))
		}
	}
	return found
}

func requested(c *v1alpha1.ApplicationComponent) v1alpha1.RequestedComponent {
	return v1alpha1.RequestedComponent{Name: c.Name, Replicas: c.Replicas, Resources: c.Resources}
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

// ceiling is one of the prices by which the user bounds what the application costs, nil if there is none.
func (s *scene) ceiling() *v1alpha1.Price {
	if asked := s.app.Spec.Placement; asked != nil && asked.MaxPrice != nil {
		return asked.MaxPrice
	}
	for i := range s.app.Spec.Components {
		if most := s.app.Spec.Components[i].MaxPrice; most != nil {
			return most
		}
	}
	return nil
}

// priceAt is what the components at the peer cost together.
func (s *scene) priceAt(peer string, status *v1alpha1.ApplicationStatus) *v1alpha1.Price {
	there := slices.DeleteFunc(slices.Clone(status.Components), func(c v1alpha1.PlacedComponent) bool { return c.Peer != peer })
	if sum := total(there); sum != nil {
		return sum
	}
	return &v1alpha1.Price{Currency: s.ceiling().Currency}
}

// where says in words where the components are.
func where(components []v1alpha1.PlacedComponent) string {
	var words []string
	for _, c := range components {
		if c.Peer == "" {
			words = append(words, c.Name+" here")
		} else {
			words = append(words, c.Name+" at "+c.Peer)
		}
	}
	return strings.Join(words, ", ")
}

// want is the Request that there is to be at the peer, given the one that is there, which may be nil. It is nil if that one is to go.
func (s *scene) want(peer string, status *v1alpha1.ApplicationStatus) *v1alpha1.Request {
	components, kept := s.components(peer, status), status.Phase == v1alpha1.ApplicationUnplaced
	if len(components) == 0 || kept && s.at[peer] == nil || !s.app.DeletionTimestamp.IsZero() {
		return nil
	}
	wanted := &v1alpha1.Request{}
	if there := s.at[peer]; there != nil {
		wanted = there.DeepCopy()
	}
	wanted.Name = offload.RequestName(s.app)
	wanted.Spec.Application = v1alpha1.RequestedApplication{UID: s.app.UID, Name: s.app.Namespace + "/" + s.app.Name}
	if !kept {
		wanted.Spec.Components = components
	}
	if s.ceiling() != nil { // if it costs more by now it is not what was chosen
		wanted.Spec.MaxPrice = s.priceAt(peer, status)
	}
	if wanted.Spec.ExpirationTime.Sub(s.now) < v1alpha1.ReservationTime/2 {
		wanted.Spec.ExpirationTime = metav1.NewTime(s.now.Add(v1alpha1.ReservationTime).Truncate(time.Second))
	}
	return wanted
}

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}
