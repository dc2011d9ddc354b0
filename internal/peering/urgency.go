package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// probesPerSecond bounds how many peers are greeted in a second while all are well: with more than that in a ProbePeriod,
// each is greeted less often. What is urgent about a peer, its virtual node knows long before a probe.
const probesPerSecond = 10

// spread returns how often each of so many peers may be greeted.
func spread(peers int) time.Duration { return time.Duration(peers) * time.Second / probesPerSecond }

// disputed reports whether the virtual node of the peer shows another answer than the last probe to the question whether
// the peer can be reached: `hanse kubelet` has streams open there, and notices at once when they break.
func (c *Controller) disputed(ctx context.Context, peer *v1alpha1.Peer, p *probe) (bool, error) {
	if p.link == nil {
		return false, nil
	}
	node := &corev1.Node{}
	key := client.ObjectKey{Name: v1alpha1.VirtualNodeName(peer.Name)}
	err := c.client.Get(ctx, key, node, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Node %s: %w", key.Name, err)
	}
	return v1alpha1.IsCutOff(node) != errors.Is(p.err, peers.ErrUnreachable), nil
}
