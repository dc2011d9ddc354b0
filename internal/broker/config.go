// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"crypto/ed25519"
	"errors"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	fieldOwner = client.FieldOwner("hanse-broker")
	workers    = 4
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	// settle is for how long news from a broker are gathered.
	settle = 200 * time.Millisecond
	// lookAgain is how soon it is looked again where no event tells.
	lookAgain = time.Minute
	// lookSoon is the same while something is under way.
	lookSoon = time.Second

	// introductionLife is for how long an introduction holds: it is made again when half of that is over.
	introductionLife = 30 * time.Minute
	// introductionPause is the least time between two.
	introductionPause = 5 * time.Second
	// marksLife is for how long marks hold, and marksPause the least time between two versions of them, for each member of the broker.
	marksLife  = time.Hour
	marksPause = 300 * time.Millisecond
	// marksMessages is how many Messages have the marks of all members.
	marksMessages = 64
	// leastToAnswer is the least time that a question must leave for its answer, so that it counts if there is none.
	leastToAnswer = 5 * time.Second
	// handOverLife is for how long a request for an invitation holds, and the answer.
	handOverLife = 10 * time.Minute
	// askAgain is how soon a member is asked again that has refused.
	askAgain = time.Minute
	// mostFromOne is how many Messages of one member lie with another one at most: two for invitations, a request and an
	// answer, and others for auctions and their winners.
	mostFromOne = 12
	// retention is for how long a Member is kept, with its key, when what it has said last does not hold any more.
	retention = 24 * time.Hour
	// maxMembers is how many Members are kept of one broker.
	maxMembers = 2000
	// maxBrokers is how many brokers are kept of a Member, as the definition of Members says.
	maxBrokers = 16
)

// messages are what is followed at brokers. There may be one for each member, and those in our own tenant namespace.
var messages = &peers.Subject{Example: &v1alpha1.Message{}, MostObjects: maxMembers + v1alpha1.MaxMessages, MostBytes: 32 << 10}

// Config is what the controllers need.
type Config struct {
	// Client reads our own cluster from a cache and writes to it.
	Client client.Client
	// Live reads our own cluster from its API server.
	Live client.Reader
	// Links are the connections to peers.
	Links *peers.Links
	Clock clock.PassiveClock
	// ClusterID is the id of this cluster, and Key the one that it signs with.
	ClusterID string
	Key       ed25519.PrivateKey
}

// Validate reports what is missing.
func (c *Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Links == nil || c.Clock == nil || c.ClusterID == "" || c.Key == nil {
		return errors.New("broker: Client, Live, Links, Clock, ClusterID and Key are needed")
	}
	return nil
}

// SetupWithManager adds the controllers to the manager. What is returned asks members.
func SetupWithManager(mgr ctrl.Manager, c Config) (*Questions, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &member{Config: c, direct: local.Uncached(c.Client, c.Live)}
	n := &notes{}
	return &Questions{m}, errors.Join(setUpRelay(mgr, c, n), setUpMarker(mgr, c, n), setUpReaders(mgr, c), m.setUp(mgr), setUpAges(mgr, c))
}

// isOurs says whether this cluster has signed the statement.
func (c *Config) isOurs(said *trust.Statement) bool {
	return said.From == c.ClusterID && said.Judge(trust.PublicKeyOf(c.Key), 0) == nil
}

func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}
