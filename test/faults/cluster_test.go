// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/hanse-dev/hanse/test/harness"
)

// A cluster is one of the testbed's, seen by its administrator.
type cluster struct {
	*harness.Cluster
	audited int64 // how long the audit log was when we connected: what is before that is of earlier runs
}

func connect(ctx context.Context, name string) (*cluster, error) {
	connected, err := harness.Connect(ctx, name, 10*time.Second) // an API server without etcd keeps requests for long
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: connected}
	info, err := os.Stat(c.auditLog())
	if err != nil {
		return nil, err
	}
	c.audited = info.Size()
	return c, nil
}

func (c *cluster) auditLog() string {
	return filepath.Join(harness.StateFolder(), c.Name, "logs", "audit.log")
}

// history reads what happened to the cluster's pods in this run.
func (c *cluster) history() ([]version, error) {
	log, err := os.Open(c.auditLog())
	if err != nil {
		return nil, err
	}
	history, err := readHistory(io.NewSectionReader(log, c.audited, math.MaxInt64-c.audited))
	return history, errors.Join(err, log.Close())
}

// again calls do until it succeeds: most of what fails here fails because something was broken on purpose.
func again(ctx context.Context, do func(ctx context.Context) error) error {
	return harness.Until(ctx, waitTimeout, do)
}
