// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/remoteevents"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	workers    = 8
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	// outageDelay is how soon a peer is looked at again that does not answer, or has no twin yet. Until then nobody asks it anything.
	outageDelay = time.Second
	// maxNote is how long the note of an event may be.
	maxNote = 1024
)

// shadows are what is followed in twins.
var shadows = &peers.Subject{Example: &v1alpha1.ShadowClaim{}, MostBytes: 16 << 10}

// Config is what the controllers of this package need.
type Config struct {
	// Client reads our own cluster from a cache and writes to it.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Links are the ways to peers, which others make.
	Links *peers.Links
	// Events tells users of their claims.
	Events events.EventRecorder
	// Tell tells them what happens to these at peers, and Clock when that is.
	Tell  func(remoteevents.Report)
	Clock clock.PassiveClock
	// Namespace is Hanse's own.
	Namespace string
}

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Links == nil || c.Events == nil || c.Tell == nil || c.Clock == nil || c.Namespace == "" {
		return errors.New("volumes: Client, Live, Links, Events, Tell, Clock and Namespace are needed")
	}
	return nil
}

// SetupWithManager adds the controllers of this package to the manager.
func SetupWithManager(mgr ctrl.Manager, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	p, k := &provisioner{c}, &keeper{c}
	provisioning := ctrl.NewControllerManagedBy(mgr).
		Named("volumes-provisioner").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(predicate.NewPredicateFuncs(unbound))).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(p.principal)).
		WatchesRawSource(peers.Changes(c.Links, shadows, p.shadowChanged)).
		WatchesRawSource(local.WatchWhenDefined(
			mgr.GetCache(), mgr.GetRESTMapper(), reflection.Snapshots, handler.EnqueueRequestsFromMapFunc(p.claimsFrom))).
		WithOptions(options())
	if err := provisioning.Complete(p); err != nil {
		return fmt.Errorf("set up the provisioner of volumes: %w", err)
	}
	keeping := ctrl.NewControllerManagedBy(mgr).
		Named("volumes-keeper").
		For(&corev1.PersistentVolume{}, builder.WithPredicates(predicate.NewPredicateFuncs(isAway))).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(volumeOf)).
		WatchesRawSource(peers.Changes(c.Links, shadows, k.shadowChanged)).
		WatchesRawSource(peers.Changes(c.Links, peers.Mappings, k.mappingChanged)).
		WithOptions(options())
	if err := keeping.Complete(k); err != nil {
		return fmt.Errorf("set up the keeper of volumes: %w", err)
	}
	return local.SetupWhenDefined(mgr, (&snapshotter{c}).setup, reflection.SnapshotContents)
}

// The default limiter waits up to 17 minutes and lets through 10 requests a second.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

func unbound(object client.Object) bool {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	return ok && claim.Spec.VolumeName == ""
}

// isAway says whether the object is a volume that lies at a peer.
func isAway(object client.Object) bool {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return false
	}
	_, away := reflection.HandleOf(volume)
	return away
}

// volumeOf is a request for the volume of the claim.
func volumeOf(_ context.Context, object client.Object) []reconcile.Request {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: claim.Spec.VolumeName}}}
}

// linkTo returns the link to the peer, or nil if there is none, or no volumes are kept there for us.
func (c *Config) linkTo(ctx context.Context, name string) (*peers.Link, error) {
	peer, err := local.Find(ctx, c.Client, client.ObjectKey{Name: name}, &v1alpha1.Peer{}, client.UnsafeDisableDeepCopy)
	if err != nil || peer == nil || !peer.HasRole(v1alpha1.RoleProvider) || !peer.Protocol().Claims {
		return nil, err
	}
	link, _ := c.Links.Get(name)
	return link, nil
}

// classOf returns the class of the claim if it is one of ours, or else nil.
func (c *Config) classOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil, nil
	}
	class, err := local.Find(ctx, c.Client, client.ObjectKey{Name: *claim.Spec.StorageClassName}, &storagev1.StorageClass{})
	if err != nil || class == nil || class.Provisioner != v1alpha1.VolumesDriver {
		return nil, err
	}
	return class, nil
}

// warn makes an event on the claim.
func (c *Config) warn(claim *corev1.PersistentVolumeClaim, reason, format string, values ...any) {
	note := sanitize.Text(fmt.Sprintf(format, values...), maxNote)
	c.Events.Eventf(claim, nil, corev1.EventTypeWarning, reason, "Provision", "%s", note)
}

// tell has the events of the peer's claim be those of ours.
func (c *Config) tell(claim *corev1.PersistentVolumeClaim, shadow *v1alpha1.ShadowClaim, peer string) {
	if shadow.Spec.HomeUID != claim.UID {
		return
	}
	c.Tell(remoteevents.Report{
		Peer: peer, Home: claim, Action: "Provision",
		Events: offload.InboundEventsOf("PersistentVolumeClaim", claim, shadow.Status.Events, c.Clock.Now()),
	})
}
