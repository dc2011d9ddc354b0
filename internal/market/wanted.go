// SPDX-License-Identifier: Apache-2.0

package market

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

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
	wanted.Spec.Application = s.identity()
	if !kept {
		wanted.Spec.Components = components
	}
	renewed := wanted.Spec.ExpirationTime.Sub(s.now) < v1alpha1.ReservationTime/2
	wanted.Spec.MaxPrice = s.maxPrice(peer, status, renewed, wanted.Spec.MaxPrice)
	if renewed {
		wanted.Spec.ExpirationTime = metav1.NewTime(s.now.Add(v1alpha1.ReservationTime).Truncate(time.Second))
	}
	return wanted
}

// components are what is asked for at the peer.
func (s *scene) components(peer string, status *v1alpha1.ApplicationStatus) []v1alpha1.RequestedComponent {
	var found []v1alpha1.RequestedComponent
	for i := range s.app.Spec.Components {
		c := &s.app.Spec.Components[i]
		for j := range status.Components {
			if at := &status.Components[j]; at.Name == c.Name && at.Peer == peer {
				found = append(found, requested(c, at.Replicas))
			}
		}
	}
	return found
}

func requested(c *v1alpha1.ApplicationComponent, replicas int32) v1alpha1.RequestedComponent {
	return v1alpha1.RequestedComponent{Name: c.Name, Replicas: replicas, Resources: c.Resources}
}

// isAcknowledged reports whether the peer has reserved what it is to run.
func (s *scene) isAcknowledged(peer string, status *v1alpha1.ApplicationStatus) bool {
	request := s.at[peer]
	if request == nil {
		return !s.heard[peer] && s.isAsBefore() && s.wasAcknowledged(peer) // it is not known otherwise
	}
	return s.doubts[peer] == nil && isAnswered(request) && request.Status.Phase == v1alpha1.RequestAcknowledged &&
		equality.Semantic.DeepEqual(request.Spec.Components, s.components(peer, status))
}

func (s *scene) wasAcknowledged(peer string) bool {
	return slices.ContainsFunc(s.app.Status.Components, func(c v1alpha1.PlacedComponent) bool { return c.Peer == peer && c.Acknowledged })
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
	return &v1alpha1.Price{Currency: s.currency()}
}
