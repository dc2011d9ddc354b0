package policymaker

import (
	"cmp"
	"errors"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// Config says where policies lie and how long they may take.
type Config struct {
	// Namespace is Hanse's own: ConfigMaps elsewhere are no policies. Default hanse-system.
	Namespace string
	// Deadline is how long the policies may take to answer. Default 50 ms. Those about placement, which compare a thousand
	// clusters and are asked ahead of time, may take placementPatience times as long.
	Deadline time.Duration
}

const placementPatience = 20

func (c *Config) deadline(question policy.Question) time.Duration {
	if question == policy.Placement {
		return placementPatience * c.Deadline
	}
	return c.Deadline
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Namespace = cmp.Or(c.Namespace, v1alpha1.SystemNamespace)
	c.Deadline = cmp.Or(c.Deadline, 50*time.Millisecond)
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.Deadline <= 0 {
		return errors.New("the deadline of policies must be positive")
	}
	return nil
}

// Bounds of what is said of one question. All that is in force and broken must fit in one ConfigMap.
const (
	maxSources = 128 << 10 // bytes of all modules in force, encoded
	maxBroken  = 64
	maxMessage = 512 // bytes that say why one is broken
)
