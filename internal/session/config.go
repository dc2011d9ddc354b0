package session

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

// Config is what an administrator may set. What is not set has the default that is named.
type Config struct {
	// ClusterID is the id of this cluster.
	ClusterID string
	// ClusterKey is its Ed25519 key, by which it proves to be itself.
	ClusterKey ed25519.PrivateKey
	// Version is the version of Hanse that runs here.
	Version string
	// RenewalPeriod is how often a session is renewed, more or less. Default 24 h.
	RenewalPeriod time.Duration
	// SessionLife is for how long a session is asked for. Default 30 days.
	SessionLife time.Duration
	// Workers is how many peers are worked on at the same time: one that does not answer holds a worker until the
	// request times out. Default 32.
	Workers int
	// Clock is the time. Default the real one.
	Clock clock.PassiveClock
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.RenewalPeriod = cmp.Or(c.RenewalPeriod, 24*time.Hour)
	c.SessionLife = cmp.Or(c.SessionLife, 30*24*time.Hour)
	c.Workers = cmp.Or(c.Workers, 32)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// minSessionLife is the shortest life that Kubernetes gives a token.
const minSessionLife = 10 * time.Minute

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var problems []error
	if c.ClusterID == "" || c.Version == "" {
		problems = append(problems, errors.New("the cluster id and the version must be set"))
	}
	if len(c.ClusterKey) != ed25519.PrivateKeySize {
		problems = append(problems, errors.New("the cluster key must be an Ed25519 key"))
	}
	if c.SessionLife < minSessionLife {
		problems = append(problems, fmt.Errorf("a session must be asked for at least %s", minSessionLife))
	}
	if c.RenewalPeriod < minInterval || c.RenewalPeriod > c.SessionLife/2 {
		problems = append(problems, fmt.Errorf("the renewal period must be between %s and half of the session's life, %s",
			minInterval, c.SessionLife/2))
	}
	if c.Workers < 1 {
		problems = append(problems, errors.New("the number of workers must be positive"))
	}
	return errors.Join(problems...)
}
