// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hanse-dev/hanse/testbed/internal/component"
	"github.com/hanse-dev/hanse/testbed/internal/network"
	"github.com/hanse-dev/hanse/testbed/internal/process"
)

// Down ends the cluster and removes every trace of it, whatever state it is in. If it does not own its slot, what is in
// the slot is another's, and only the processes that were written down are the cluster's.
func (c Cluster) Down(ctx context.Context, ownsSlot bool) error {
	records, err := c.records()
	if err != nil {
		return c.failure(err)
	}
	if err := (process.Place{PIDs: records}).Clear(ctx); err != nil {
		return c.failure(err)
	}
	if ownsSlot {
		if err := c.clearNodes(ctx); err != nil {
			return c.failure(err)
		}
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return c.failure(err)
	}
	return nil
}

// clearNodes ends all that runs on the cluster's nodes, and removes the nodes.
func (c Cluster) clearNodes(ctx context.Context) error {
	place := process.Place{Netns: []string{c.ControlPlane().NetnsPath()}}
	if err := place.Clear(ctx); err != nil {
		return err
	}
	return errors.Join(
		c.removeWorkers(ctx, func(int) bool { return true }),
		network.Remove(ctx, c.ControlPlane()),
		network.RemoveSwitch(ctx, c.Cluster),
	)
}

// records are all that was written down of the cluster's processes.
func (c Cluster) records() ([]process.Record, error) {
	files, err := filepath.Glob(filepath.Join(c.PIDDir(), "*.json"))
	if err != nil {
		return nil, err
	}
	var records []process.Record
	for _, file := range files {
		record, err := process.Read(file)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// Status describes the cluster and which of its components run.
func (c Cluster) Status(ctx context.Context) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "%s  kubernetes %s  %s  %s\n", c.Name, c.Options.Kubernetes, c.Server(), c.ready(ctx))
	for _, part := range component.All(c.Cluster) {
		record, err := process.Read(part.PIDFile())
		if err != nil {
			return "", err
		}
		state := "stopped"
		if record.Alive() {
			state = fmt.Sprintf("running, process %d", record.PID)
		}
		fmt.Fprintf(&text, "  %-20s %s\n", part.Name, state)
	}
	for _, link := range c.Options.Links {
		peer := link.Peer
		if peer == "" {
			peer = "everybody else"
		}
		fmt.Fprintf(&text, "  link with %s: %s\n", peer, link.Impairment)
	}
	return text.String(), nil
}

func (c Cluster) ready(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client, err := c.client()
	if err != nil {
		return "not ready: " + err.Error()
	}
	if err := client.Ready(ctx); err != nil {
		return "not ready: " + err.Error()
	}
	return "ready"
}
