package discovery

import (
	"cmp"
	"errors"
	"net"
	"time"

	"k8s.io/utils/clock"
)

// Config is what an administrator may set. What is not set has the default that is named.
type Config struct {
	// Self is what this cluster says of itself.
	Self Announcement
	// Multicast says whether to announce and look on the local network.
	Multicast bool
	// Address is the address of the machine that announces, as multicast DNS wants one.
	Address net.IP
	// Domains are those whose SRV records are looked up.
	Domains []string
	// Period is how often it is looked. Default 1 min.
	Period time.Duration
	// Patience is how long a cluster is remembered that is not seen any more and that nobody has accepted. Default 1 h.
	Patience time.Duration
	// MaxPeers is how many clusters that nobody has accepted are remembered. Default 64.
	MaxPeers int
	// Clock is the time. Default the real one.
	Clock clock.WithTicker
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Period = cmp.Or(c.Period, time.Minute)
	c.Patience = cmp.Or(c.Patience, time.Hour)
	c.MaxPeers = cmp.Or(c.MaxPeers, 64)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var problems []error
	if !c.Multicast && len(c.Domains) == 0 {
		problems = append(problems, errors.New("there is nowhere to look: neither multicast DNS nor a domain is set"))
	}
	if c.Multicast && c.Address == nil {
		problems = append(problems, errors.New("multicast DNS needs the address of this machine"))
	}
	if c.Period < 0 || c.Patience < 0 || c.MaxPeers < 0 {
		problems = append(problems, errors.New("the period, the patience and the number of peers must be positive"))
	}
	return errors.Join(append(problems, c.Self.check())...)
}
