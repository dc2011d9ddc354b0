package agentless

import (
	"errors"
	"time"
)

// Config is what an administrator may set of the offers that are made for peers without Hanse.
type Config struct {
	// ClusterID is the id of this cluster. It must be set.
	ClusterID string
	// Interval is how often a peer is looked at. It must be set.
	Interval time.Duration
	// TimeToLive is for how long an offer lives when the peer does not answer any more. It must be longer than Interval.
	TimeToLive time.Duration
	// LabelKeys are the labels of nodes that are told where all nodes of the peer agree.
	LabelKeys []string
	// Workers is how many peers are read at the same time. It must be set.
	Workers int
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.ClusterID == "" || c.Interval <= 0 || c.TimeToLive <= c.Interval || c.Workers < 1 {
		return errors.New("offers of clusters without Hanse need a cluster id, workers, an interval and a longer time to live")
	}
	return nil
}
