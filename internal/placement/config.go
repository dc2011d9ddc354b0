package placement

import (
	"cmp"
	"errors"
	"time"
)

// Config is what an administrator may set. What is not set has the default that is named.
type Config struct {
	// ClusterID is the id of this cluster. It must be set.
	ClusterID string
	// Interval is the least time between two looks at one namespace, and between two at what providers offer. Default 1 s.
	Interval time.Duration
	// LookAgain is how often all is looked at when nothing changes: policies may depend on the time. Default 5 minutes.
	LookAgain time.Duration
	// Retry is after what time policies are asked again that did not answer. Default 10 s.
	Retry time.Duration
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Interval = cmp.Or(c.Interval, time.Second)
	c.LookAgain = cmp.Or(c.LookAgain, 5*time.Minute)
	c.Retry = cmp.Or(c.Retry, 10*time.Second)
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.ClusterID == "" {
		return errors.New("placement: the cluster id must be set")
	}
	if c.Interval <= 0 || c.LookAgain < c.Interval || c.Retry < c.Interval {
		return errors.New("placement: intervals must be positive, and the one between looks at a namespace the shortest")
	}
	return nil
}
