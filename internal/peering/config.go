package peering

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// maxClusterID is how long a cluster id may be.
const maxClusterID = 30

// minBandwidthInterval keeps measurements from being a load themselves.
const minBandwidthInterval = time.Minute

// Config is what an administrator may set. What is not set has the default that is named.
type Config struct {
	// Namespace is Hanse's own. Default v1alpha1.SystemNamespace.
	Namespace string
	// ClusterID is the id of this cluster, as EnsureClusterInfo returns it.
	ClusterID string
	// ClusterKey is the key of this cluster, as EnsureClusterInfo returns it.
	ClusterKey ed25519.PrivateKey
	// Version is the version of Hanse that runs here.
	Version string
	// PodCIDRs are the ranges of this cluster's own pods, as far as nodes do not tell.
	PodCIDRs []netip.Prefix
	// AddressPools are where the ranges come from in which this cluster sees the pods of its peers, tried in this order.
	// Default DefaultAddressPools.
	AddressPools []netip.Prefix
	// ProbePeriod is how often a provider is greeted. One that does not answer is greeted again at once, and then ever
	// more rarely. With hundreds of peers it is less often. Default 30 s.
	ProbePeriod time.Duration
	// BandwidthInterval is how often it is measured how fast data comes from a provider. It is also what lets consumers
	// measure that of this cluster. Default 0: never.
	BandwidthInterval time.Duration
	// PartingDeadline is how long a peer that is our consumer has to leave after its Peer was deleted. Default 5 min.
	PartingDeadline time.Duration
	// TombstoneLife is how long it is remembered that we have parted from a peer by force. Default 30 days.
	TombstoneLife time.Duration
	// Workers is how many peers are worked on at the same time: one that does not answer holds a worker until the
	// request times out. Default 32.
	Workers int
	// ManagerServiceAccount and KubeletServiceAccount are the names of Hanse's own service accounts. Default
	// hanse-manager and hanse-kubelet.
	ManagerServiceAccount, KubeletServiceAccount string
	// Clock is the time. Default the real one.
	Clock clock.Clock
}

// DefaultAddressPools are ranges that seldom clash. The IPv4 one is the shared address space of RFC 6598: never routed
// in the Internet, and, other than the private ranges, hardly ever given to pods, Services, nodes or offices. It has room
// for 64 peers with the usual /16. The IPv6 one is a unique local range.
func DefaultAddressPools() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd68:616e:7365::/48")}
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Namespace = cmp.Or(c.Namespace, v1alpha1.SystemNamespace)
	c.ManagerServiceAccount = cmp.Or(c.ManagerServiceAccount, "hanse-manager")
	c.KubeletServiceAccount = cmp.Or(c.KubeletServiceAccount, "hanse-kubelet")
	c.ProbePeriod = cmp.Or(c.ProbePeriod, 30*time.Second)
	c.PartingDeadline = cmp.Or(c.PartingDeadline, 5*time.Minute)
	c.TombstoneLife = cmp.Or(c.TombstoneLife, 30*24*time.Hour)
	c.Workers = cmp.Or(c.Workers, 32)
	if len(c.AddressPools) == 0 {
		c.AddressPools = DefaultAddressPools()
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var problems []error
	if err := validateClusterID(c.ClusterID); err != nil {
		problems = append(problems, err)
	}
	if c.Version == "" || len(c.Version) > 64 {
		problems = append(problems, fmt.Errorf("version %q must have 1 to 64 characters", c.Version))
	}
	if len(c.ClusterKey) != ed25519.PrivateKeySize {
		problems = append(problems, errors.New("the cluster key is missing"))
	}
	if c.ProbePeriod <= 0 || c.Workers < 1 {
		problems = append(problems, errors.New("the probe period and the number of workers must be positive"))
	}
	if c.PartingDeadline <= 0 || c.TombstoneLife <= 0 {
		problems = append(problems, errors.New("the parting deadline and the life of a tombstone must be positive"))
	}
	problems = append(problems, validateBandwidthInterval(c.BandwidthInterval))
	for _, prefix := range append(c.PodCIDRs[:len(c.PodCIDRs):len(c.PodCIDRs)], c.AddressPools...) {
		if !prefix.IsValid() || prefix != prefix.Masked() {
			problems = append(problems, fmt.Errorf("%s is not a range: the bits behind its length must be 0", prefix))
		}
	}
	return errors.Join(problems...)
}

func validateBandwidthInterval(interval time.Duration) error {
	if interval != 0 && interval < minBandwidthInterval {
		return fmt.Errorf("the bandwidth interval must be 0 or at least %v", minBandwidthInterval)
	}
	return nil
}

func validateClusterID(id string) error {
	if len(id) > maxClusterID || len(validation.IsDNS1123Label(id)) > 0 {
		return fmt.Errorf("cluster id %q must be a DNS label of at most %d characters", id, maxClusterID)
	}
	return nil
}
