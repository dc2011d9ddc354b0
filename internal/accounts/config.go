// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"crypto/ed25519"
	"errors"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	fieldOwner = client.FieldOwner("hanse-accounts")
	workers    = 4
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute

	// DefaultPeriod is how often what was counted is written down.
	DefaultPeriod = 5 * time.Minute
	leastPeriod   = time.Second
	day           = 24 * time.Hour
	// cleanUpEvery is how often it is looked for Accounts that are too old.
	cleanUpEvery = 12 * time.Hour
)

// counts are what is followed at peers: the Accounts that they have of us, one by one.
var counts = &peers.Subject{Example: &v1alpha1.Account{}, MostObjects: 10, MostBytes: 256 << 10} // a page counts as ten at least

// Config is what the controller needs.
type Config struct {
	// Client reads our own cluster from a cache and writes to it.
	Client client.Client
	// Links are the connections to peers.
	Links *peers.Links
	// Events tells administrators of counts that differ.
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// ClusterID is the id of this cluster, which names its own advertisements, and Key the one by which it signs its counts.
	ClusterID string
	Key       ed25519.PrivateKey
	// Period is how often what was counted is written down.
	Period time.Duration
}

// Validate reports what is missing or wrong.
func (c *Config) Validate() error {
	if c.Client == nil || c.Links == nil || c.Events == nil || c.Clock == nil || c.ClusterID == "" || c.Key == nil {
		return errors.New("accounts: Client, Links, Events, Clock, ClusterID and Key are needed")
	}
	if c.Period < leastPeriod || c.Period%time.Second != 0 || day%c.Period != 0 {
		return errors.New("the accounting period must be a whole number of seconds that divides a day, such as 5m")
	}
	return nil
}

// accountant keeps the Accounts of all peers. It is asked for one peer in one direction at a time: the namespace of a request is the
// direction, and its name the peer.
type accountant struct {
	Config

	meters map[v1alpha1.AccountDirection]*exchange.Meter
}

func newAccountant(c Config) *accountant {
	return &accountant{c, map[v1alpha1.AccountDirection]*exchange.Meter{
		v1alpha1.AccountLent: exchange.NewMeter(), v1alpha1.AccountBorrowed: exchange.NewMeter(),
	}}
}

// SetupWithManager adds the controller to the manager.
func SetupWithManager(mgr ctrl.Manager, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	a := newAccountant(c)
	return ctrl.NewControllerManagedBy(mgr).
		Named("account").
		Watches(&v1alpha1.Account{}, feed{a, a.accountChanged, a.accountChanged}).
		Watches(&corev1.Pod{}, feed{a, a.podChanged, a.podGone}).
		Watches(&v1alpha1.Request{}, feed{a, a.requestChanged, a.requestGone}).
		Watches(&v1alpha1.Peer{}, feed{a, ignored, a.peerGone}).
		WatchesRawSource(peers.Changes(c.Links, peers.Requests, a.requestsAt)).
		WatchesRawSource(peers.Changes(c.Links, counts, func(_ context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
			queue.AddAfter(requestFor(v1alpha1.AccountBorrowed, change.Link.Peer()), a.answerDelay())
		})).
		WatchesRawSource(peers.LinkChanges(c.Links, func(_ context.Context, peer string, queue peers.Queue[reconcile.Request]) {
			queue.AddAfter(requestFor(v1alpha1.AccountBorrowed, peer), a.answerDelay())
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(a)
}

func requestFor(direction v1alpha1.AccountDirection, peer string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: string(direction), Name: peer}}
}

// answerDelay is how long news of a peer wait, so that a peer that writes all the time has us write ten times in a period at most.
func (a *accountant) answerDelay() time.Duration { return a.Period / 10 }

// settle is for how long after the end of a period its news may come. It differs between peers, so that not all are written at once.
func (a *accountant) settle(peer string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(peer)) // which never fails
	return a.Period/20 + a.Period/5*time.Duration(hash.Sum32()%100)/100
}

// counted is until when there is to be a count by now.
func (a *accountant) counted(peer string) time.Time {
	return a.Clock.Now().UTC().Add(-a.settle(peer)).Truncate(a.Period)
}

// untilNext is when the next period is to be counted.
func (a *accountant) untilNext(peer string) time.Duration {
	return a.counted(peer).Add(a.Period + a.settle(peer)).Sub(a.Clock.Now())
}
