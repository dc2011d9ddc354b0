package advertisement

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
)

// observe gathers the facts. That the peer cannot be read is a fact, and no error.
func (r *Receiver) observe(ctx context.Context, peer *v1alpha1.Peer, now time.Time) (facts, error) {
	f := facts{peer: peer, self: peer.Spec.ClusterID == r.config.ClusterID}
	if f.self {
		return f, nil
	}
	var err error
	if f.copy, err = r.held(ctx, peer); err != nil {
		return f, err
	}
	known, err := r.watches.of(ctx, peer)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("There is no link to the peer", "cause", err.Error())
		return f, nil
	}
	f.link, f.synced, f.mirrorErr = known.link, known.mirror.HasSynced(), known.mirror.Err()
	if errors.Is(f.mirrorErr, peers.ErrTooLarge) {
		f.malformed = f.mirrorErr // what the mirror shows is older than that
		return f, nil
	}
	offer := offerKey(peer, known.link)
	var newest client.Object
	if newest, f.heldBack = known.newest(offer, now, r.config.ReceiveInterval); newest != nil {
		f.raw, f.offer, f.malformed = decode(newest)
		if f.heldBack > 0 || f.mirrorErr != nil {
			f.raw = nil // there is, or may be, a newer version over there, which will be answered
		}
		return f, nil
	}
	f.withdrawn = f.synced && f.copy != nil && isGone(ctx, known.link, offer)
	return f, nil
}

// held returns the copy, or nil. A peer without an id has none, and what has our own id is our own offer.
func (r *Receiver) held(ctx context.Context, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	if id := peer.Spec.ClusterID; id == "" || id == r.config.ClusterID {
		return nil, nil
	}
	held := &v1alpha1.Advertisement{}
	if err := r.client.Get(ctx, copyKey(peer), held); err != nil {
		return nil, wrap(client.IgnoreNotFound(err), "read the copy %s", copyKey(peer))
	}
	return held, nil
}

func decode(object client.Object) (*unstructured.Unstructured, *v1alpha1.Advertisement, error) {
	raw, isRaw := object.(*unstructured.Unstructured)
	if !isRaw {
		return nil, nil, fmt.Errorf("mirrored object is a %T", object)
	}
	offer, err := exchange.Decode(raw.Object)
	return raw, offer, err
}

// isGone asks the API server, since a mirror that does not show something is no proof that it is not there.
func isGone(ctx context.Context, link Link, key types.NamespacedName) bool {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(advertisementKind)
	return apierrors.IsNotFound(link.Client().Get(ctx, key, object))
}

// copyKey names the copy of the peer's advertisement in our own cluster.
func copyKey(peer *v1alpha1.Peer) types.NamespacedName {
	return types.NamespacedName{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
}

// offerKey names the peer's advertisement in its own cluster.
func offerKey(peer *v1alpha1.Peer, link Link) types.NamespacedName {
	return types.NamespacedName{Namespace: link.TenantNamespace(), Name: peer.Spec.ClusterID}
}
