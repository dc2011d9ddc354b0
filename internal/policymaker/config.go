package policymaker

import (
	"cmp"
	"errors"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Config says where policies lie and how long they may take.
type Config struct {
	// Namespace is Hanse's own: ConfigMaps elsewhere are no policies. Default hanse-system.
	Namespace string
	// Deadline is how long the policies may take to answer. Default 50 ms.
	Deadline time.Duration
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
