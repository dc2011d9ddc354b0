// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"slices"
	"strings"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// keptVolumes names our claims and snapshots, and volumes whose claims are gone, of which there is data at the peer, unless the Peer says
// that it is to go with the peering.
func (c *leaveStep) keptVolumes(ctx context.Context, peer *v1alpha1.Peer) ([]string, error) {
	if peer.Parting().Volumes == v1alpha1.DeleteVolumes || peer.Parting().Mode != v1alpha1.PartingAgreed {
		return nil, nil
	}
	stored, err := local.StoredAt(ctx, c.direct, func(at reflection.Handle) bool { return at.Peer == peer.Name })
	if err != nil {
		return nil, err
	}
	kept := make([]string, len(stored))
	for i := range stored {
		kept[i] = stored[i].Name()
	}
	slices.Sort(kept)
	return kept, nil
}

// shownVolumes is how many of them a message names.
const shownVolumes = 5

// volumesAway is what the parting waits for where our twins at the peer would take data with them.
func (p *parting) volumesAway() obstacle {
	if len(p.volumes) == 0 {
		return obstacle{}
	}
	shown, more := p.volumes[:min(len(p.volumes), shownVolumes)], ""
	if len(p.volumes) > shownVolumes {
		more = ", ..."
	}
	return obstacle{thing: "claims and snapshots whose data is at the peer to be deleted (" + strings.Join(shown, ", ") + more +
		"), or spec.parting.volumes to be Delete"}
}
