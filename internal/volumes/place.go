// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// place is where a volume or a snapshot of ours lies.
type place struct {
	at     reflection.Handle
	parted bool // the peer is no peer any more, and keeps nothing for us
	link   *peers.Link
}

// placeOf looks at the place.
func (c *Config) placeOf(ctx context.Context, at reflection.Handle) (place, error) {
	peer, err := local.Find(ctx, c.Client, client.ObjectKey{Name: at.Peer}, &v1alpha1.Peer{}, client.UnsafeDisableDeepCopy)
	if err != nil || peer == nil {
		return place{at: at, parted: true}, err
	}
	link, err := c.linkTo(ctx, at.Peer)
	return place{at: at, link: link}, err
}

// isReachable says whether the peer answers, and it is known which twins we have there.
func (p *place) isReachable() bool {
	return p.link != nil && p.link.Err() == nil && p.link.Mappings().HasSynced()
}

// canClear says whether clear can do what it is for.
func (p *place) canClear() bool { return p.parted || p.isReachable() }

// clear has the peer delete what lies there. Where there is no twin any more, there is nothing to delete.
func (p *place) clear(ctx context.Context) error {
	if p.parted {
		return nil
	}
	twin := p.link.Twin(p.at.Namespace)
	if twin == "" {
		return nil
	}
	shadow := &v1alpha1.ShadowClaim{ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: p.at.Claim}}
	if err := client.IgnoreNotFound(p.link.Client().Delete(ctx, shadow)); err != nil {
		return fmt.Errorf("delete ShadowClaim %s: %w", p.at.Claim, err)
	}
	return nil
}

// kept returns what the peer keeps there for us, nil if that is nothing, and in which twin that is, or "" while that is not known.
func (p *place) kept() (shadow *v1alpha1.ShadowClaim, twin string) {
	over := p.link.FollowTwin(shadows, p.at.Namespace)
	if over == nil || !over.HasSynced() || over.Err() != nil {
		return nil, ""
	}
	found, _ := over.Named(p.at.Claim)
	shadow, _ = found.(*v1alpha1.ShadowClaim)
	return shadow, over.Namespace()
}
