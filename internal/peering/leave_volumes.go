package peering

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// keptVolumes returns our claims, or volumes whose claims are gone, of which there is data at the peer, unless the Peer says that
// it is to go with the peering.
func (c *leaveStep) keptVolumes(ctx context.Context, peer *v1alpha1.Peer) ([]string, error) {
	if peer.Parting().Volumes == v1alpha1.DeleteVolumes || peer.Parting().Mode != v1alpha1.PartingAgreed {
		return nil, nil
	}
	volumes := &corev1.PersistentVolumeList{}
	if err := c.direct.List(ctx, volumes); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	var kept []string
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		if at, away := reflection.HandleOf(volume); !away || at.Peer != peer.Name {
			continue
		}
		name := "volume " + volume.Name
		if ref := volume.Spec.ClaimRef; ref != nil {
			name = ref.Namespace + "/" + ref.Name
		}
		kept = append(kept, name)
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
	return obstacle{thing: "claims whose data is at the peer to be deleted (" + strings.Join(shown, ", ") + more +
		"), or spec.parting.volumes to be Delete"}
}
