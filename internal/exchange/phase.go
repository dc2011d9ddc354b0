package exchange

import (
	"cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Phase returns the phase of the offer, which is Open unless it names another.
func Phase(ad *v1alpha1.AdvertisementSpec) v1alpha1.OfferPhase {
	return cmp.Or(ad.Phase, v1alpha1.OfferOpen)
}

// PhaseFor returns the phase of what we offer to the peer as a consumer.
func PhaseFor(peer *v1alpha1.Peer) v1alpha1.OfferPhase {
	if !peer.DeletionTimestamp.IsZero() {
		return v1alpha1.OfferLeaving
	}
	switch peer.Spec.Access {
	case v1alpha1.AccessDraining:
		return v1alpha1.OfferDraining
	case v1alpha1.AccessCordoned, v1alpha1.AccessSuspended:
		return v1alpha1.OfferCordoned
	default:
		return v1alpha1.OfferOpen
	}
}

func judgePhase(ad *v1alpha1.AdvertisementSpec) Verdict {
	switch Phase(ad) {
	case v1alpha1.OfferOpen, v1alpha1.OfferCordoned, v1alpha1.OfferDraining, v1alpha1.OfferLeaving:
		return accepted()
	default:
		return refused(v1alpha1.ReasonInvalidField,
			"spec.phase is %s: it must be Open, Cordoned, Draining or Leaving", quoted(string(ad.Phase)))
	}
}
