// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"k8s.io/utils/clock"
)

// Config is what the process is told at its start.
type Config struct {
	Namespace string       // Hanse's own
	Pod       string       // name of this pod, in the namespace of the network
	Node      string       // on which it runs
	Addresses []netip.Addr // of this pod: nodes reach its VXLAN at the first
	MTU       int          // of the pod's own link; 0 if it is not known
	Port      int          // UDP, of WireGuard. Default 51820

	// LeaseDuration is how long an active gateway may be silent before another takes over. Default 1.5 s.
	LeaseDuration time.Duration
	// LeaseRenewal is how often the active one says that it is there. Default 400 ms.
	LeaseRenewal time.Duration
	// Clock is the time. Default the real one.
	Clock clock.WithTicker
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Port = cmp.Or(c.Port, 51820)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 1500*time.Millisecond)
	c.LeaseRenewal = cmp.Or(c.LeaseRenewal, 400*time.Millisecond)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var problems []error
	if c.Pod == "" || c.Node == "" || len(c.Addresses) == 0 {
		problems = append(problems, errors.New("a gateway must know the name of its pod and its node, and the addresses of the pod"))
	}
	if c.Port < 1 || c.Port > 65535 {
		problems = append(problems, errors.New("the port of WireGuard must be one of UDP"))
	}
	if c.LeaseRenewal < 0 || c.LeaseDuration < 2*c.LeaseRenewal {
		problems = append(problems, errors.New("a lease must be renewed at least twice in its duration"))
	}
	return errors.Join(problems...)
}
