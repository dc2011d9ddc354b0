// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/internal/exchange"
)

// maxAggregateShare is how many percent may be added to the prices of what is passed on.
const maxAggregateShare = 1000

// Config is what an administrator may set. What is not set has the default that is named.
type Config struct {
	// ClusterID is the id of this cluster. It must be set.
	ClusterID string
	// Namespace is Hanse's own, where the ConfigMap of prices lies. It must be set.
	Namespace string
	// Workers is how many peers are worked on at the same time, by the publisher and by the receiver each. Default 16.
	Workers int

	// RenewInterval is how often an offer is said again when nothing changes, and how long an answer of the policies
	// holds at most. Default 10 minutes.
	RenewInterval time.Duration
	// SilenceTimeout is for how long a provider may be silent before its offer counts as ended, and how long our own
	// offers live. Default three times RenewInterval.
	SilenceTimeout time.Duration
	// FullInterval is how often the whole offer is said again when its terms do not change. Default 30 minutes.
	FullInterval time.Duration
	// MinInterval is the least time between two messages to one consumer, and between two looks at the capacity of the
	// cluster. Default 2 s.
	MinInterval time.Duration
	// SettleInterval is the least time between two messages that tell of a change within the threshold. Default 30 s.
	SettleInterval time.Duration
	// Threshold is by how many percent of what was offered a resource must move for consumers to be told at once.
	// Default 5.
	Threshold int64

	// Margin is what is never offered to anybody. By default nothing.
	Margin corev1.ResourceList
	// LabelKeys are the labels of nodes that are offered where all nodes agree. By default the region.
	LabelKeys []string
	// MaxImages is how many images are offered. Default exchange.MaxImages.
	MaxImages int
	// ImagePatterns say which images every consumer may know of; of all others it is told those that its own pods use
	// here. Default exchange.DefaultImagePatterns.
	ImagePatterns []string

	// Aggregate makes what our providers offer us a part of what we offer our consumers. By default it is not.
	Aggregate bool
	// AggregateShare is how many percent are added to the prices of what is passed on. By default nothing.
	AggregateShare int64

	// Bounds are the limits of what is believed. By default exchange.DefaultBounds.
	Bounds exchange.Bounds
	// ReceiveInterval is the least time between two looks at the messages of one provider, however fast it writes.
	// Default 1 s.
	ReceiveInterval time.Duration
}

// Default fills in what was not set.
func (c *Config) Default() {
	c.Workers = cmp.Or(c.Workers, 16)
	c.RenewInterval = cmp.Or(c.RenewInterval, 10*time.Minute)
	c.SilenceTimeout = cmp.Or(c.SilenceTimeout, 3*c.RenewInterval)
	c.FullInterval = cmp.Or(c.FullInterval, 30*time.Minute)
	c.MinInterval = cmp.Or(c.MinInterval, 2*time.Second)
	c.SettleInterval = cmp.Or(c.SettleInterval, 30*time.Second)
	c.Threshold = cmp.Or(c.Threshold, 5)
	c.MaxImages = cmp.Or(c.MaxImages, exchange.MaxImages)
	c.Bounds = cmp.Or(c.Bounds, exchange.DefaultBounds())
	c.ReceiveInterval = cmp.Or(c.ReceiveInterval, time.Second)
	if c.LabelKeys == nil {
		c.LabelKeys = []string{corev1.LabelTopologyRegion}
	}
	if c.ImagePatterns == nil {
		c.ImagePatterns = exchange.DefaultImagePatterns()
	}
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	refuse(c.ClusterID == "" || c.Namespace == "", "the cluster id and the namespace of Hanse must be set")
	refuse(c.Workers < 1, "%d workers: at least one is needed", c.Workers)
	refuse(c.Threshold < 0 || c.MaxImages < 0 || c.MaxImages > 100, "the threshold must not be negative, and the images at most 100")
	refuse(c.AggregateShare < 0 || c.AggregateShare > maxAggregateShare,
		"a share of %d percent: it must be between 0 and %d", c.AggregateShare, maxAggregateShare)
	refuse(c.RenewInterval <= 0 || c.RenewInterval >= c.SilenceTimeout,
		"a renewal every %s is too rare for a timeout of %s", c.RenewInterval, c.SilenceTimeout)
	refuse(c.FullInterval < c.RenewInterval,
		"full messages every %s cannot be more frequent than renewals every %s", c.FullInterval, c.RenewInterval)
	refuse(c.MinInterval <= 0 || c.SettleInterval < c.MinInterval || c.ReceiveInterval <= 0,
		"intervals must be positive, and that of small changes not shorter than that of all")
	return errors.Join(problems...)
}
