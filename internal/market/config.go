// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	fieldOwner = client.FieldOwner("hanse-market")
	workers    = 4
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	// settle is for how long changes of offers are gathered before Applications without a place are looked at.
	settle = time.Second
	// answerTime is for how long a peer may leave a Request unanswered.
	answerTime = 30 * time.Second
	// refusalTime is for how long a peer that has refused is not asked again.
	refusalTime = time.Minute
	// livenessInterval is how often it is looked whether components live.
	livenessInterval = 30 * time.Second
	// lookAgain is how soon an Application without a place is looked at if no offer changes.
	lookAgain = time.Minute
)

// requests are what is followed at peers.
var requests = peers.Requests

// Home tells what this cluster has for pods of its own.
type Home interface {
	// Home is what would be offered to ourselves: what is free and not promised to others.
	Home() v1alpha1.AdvertisementSpec
}

// Members carries Quotes, Requests and their answers between this cluster and members of its brokers.
type Members interface {
	// Quote asks the member for an offer through the broker, unless it has been asked for the same.
	Quote(ctx context.Context, broker, member, name string, quote *v1alpha1.QuoteSpec) error
	// Offer is the Quote of that name with the offer of the member, nil if there is none yet.
	Offer(ctx context.Context, broker, member, name string) *v1alpha1.Quote
	// Request asks the member for room until it is a peer, unless it has been asked for the same. It is given back when no component waits for
	// it. The error is trust.ErrStatementSize if it is too large.
	Request(ctx context.Context, broker, member, name string, request *v1alpha1.RequestSpec) error
	// Answer is the Request of that name with the answer of the member, nil if there is none yet.
	Answer(ctx context.Context, broker, member, name string) *v1alpha1.Request
	// Changes tells of brokers through which something has come.
	Changes(enqueue func(ctx context.Context, broker string, queue peers.Queue[reconcile.Request])) source.Source
}

// Config is what the controller needs.
type Config struct {
	// Client reads our own cluster from a cache and writes to it.
	Client client.Client
	// Live reads our own cluster from its API server.
	Live client.Reader
	// Links are the connections to peers.
	Links   *peers.Links
	Home    Home
	Members Members
	// Events tells users of their Applications.
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// ClusterID is the id of this cluster, which names its own advertisements, and Key the one that it signs with.
	ClusterID string
	Key       ed25519.PrivateKey
}

// Validate reports what is missing.
func (c *Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Links == nil || c.Home == nil || c.Members == nil || c.Events == nil || c.Clock == nil || c.ClusterID == "" || c.Key == nil {
		return errors.New("market: Client, Live, Links, Home, Members, Events, Clock, ClusterID and Key are needed")
	}
	return nil
}

// SetupWithManager adds the controller to the manager.
func SetupWithManager(mgr ctrl.Manager, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	a := &applications{Config: c}
	if err := a.setUpWorkloads(mgr); err != nil {
		return err
	}
	unplaced := local.Later(settle, a.unplaced)
	return ctrl.NewControllerManagedBy(mgr).
		Named("market").
		For(&v1alpha1.Application{}).
		Watches(&v1alpha1.Advertisement{}, unplaced).
		Watches(&v1alpha1.NamespaceOffloading{}, unplaced).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(a.atPeer), builder.WithPredicates(standingChanged)).
		WatchesRawSource(a.changesOf("Deployment")).
		WatchesRawSource(a.changesOf("StatefulSet")).
		WatchesRawSource(peers.Changes(c.Links, requests, a.answered)).
		WatchesRawSource(peers.Changes(c.Links, quotes, a.answered)).
		WatchesRawSource(c.Members.Changes(a.relayed)).
		WatchesRawSource(peers.LinkChanges(c.Links, a.linked)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(a)
}

// unplaced are the Applications that have no place, or wait for one.
func (a *applications) unplaced(ctx context.Context, _ client.Object) []reconcile.Request {
	return a.those(ctx, func(app *v1alpha1.Application) bool { return app.Status.Phase != v1alpha1.ApplicationPlaced })
}

// standingChanged lets through what changes whether a Peer answers, whether it is one, or whether it comes to be one.
var standingChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(*v1alpha1.Peer)
		after, is := e.ObjectNew.(*v1alpha1.Peer)
		return was && is && (isCutOff(before) != isCutOff(after) || notIntroduced(before) != notIntroduced(after))
	},
}

func isCutOff(peer *v1alpha1.Peer) bool {
	return meta.IsStatusConditionFalse(peer.Status.Conditions, v1alpha1.ConditionReachable)
}

// atPeer are the Applications that have asked the peer for something.
func (a *applications) atPeer(ctx context.Context, peer client.Object) []reconcile.Request {
	return a.those(ctx, func(app *v1alpha1.Application) bool { return asked(app, peer.GetName()) })
}

// answered looks at the Application that the Request or Quote is for.
func (a *applications) answered(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	peer := change.Link.Peer()
	for _, request := range a.those(ctx, func(app *v1alpha1.Application) bool {
		return asked(app, peer) && (change.Name == "" || change.Name == offload.RequestName(app))
	}) {
		queue.Add(request)
	}
}

// relayed looks at the Applications that have members asked through the broker.
func (a *applications) relayed(ctx context.Context, broker string, queue peers.Queue[reconcile.Request]) {
	for _, request := range a.those(ctx, func(app *v1alpha1.Application) bool {
		return isOpen(app) && slices.ContainsFunc(app.Status.Auction.Offers, func(o v1alpha1.AuctionOffer) bool { return o.Broker == broker }) ||
			slices.ContainsFunc(peersOf(app.Status.Components), func(peer string) bool { return introducerOf(&app.Status, peer) == broker })
	}) {
		queue.Add(request)
	}
}

// linked looks at the Applications that have asked the peer for something.
func (a *applications) linked(ctx context.Context, peer string, queue peers.Queue[reconcile.Request]) {
	for _, request := range a.atPeer(ctx, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: peer}}) {
		queue.Add(request)
	}
}

func (a *applications) those(ctx context.Context, concerned func(*v1alpha1.Application) bool) []reconcile.Request {
	all := &v1alpha1.ApplicationList{}
	if err := a.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List Applications")
		return nil
	}
	var found []reconcile.Request
	for i := range all.Items {
		if concerned(&all.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return found
}
