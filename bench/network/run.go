// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// A Config says what to measure.
type Config struct {
	Bed    lab.Testbed
	Rounds int // in each of which every way through the gateways has its turn; 0 leaves them out
	Times  int // that the same two clusters become peers, each time as strangers
	Peers  int // that a gateway has while its memory is read; 0 leaves out all that needs clusters
	Nodes  int // that come new, one after the other
	Say    func(format string, args ...any)
}

// A Result is what was measured, as far as it came.
type Result struct {
	Config
	Figures Figures
	New     measure.Sample // of peers: from both having accepted to the first packet
	Nodes   measure.Sample // from the start of the fabric on a new node to its first packet
	Idle    lab.Usage      // of a gateway with all peers
	Loaded  lab.Usage      // after one peer has sent a lot
}

// flood is what one peer sends before the memory of the gateway is read again.
const flood = 1 << 30

// port is one at which nobody listens.
const port = 9

type experiment struct {
	Config
	*lab.Pair
	fail     context.CancelCauseFunc
	clock    clock.Clock
	consumer *side
	provider *side
	seen     netip.Addr // the provider's gateway, as the consumer sees it
	fabrics  []*lab.Server
	nodes    []*lab.Space
}

// Run measures.
func Run(ctx context.Context, config Config) (result Result, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	result = Result{Config: config}
	e := &experiment{Config: config, fail: fail, clock: clock.RealClock{}}
	if config.Rounds > 0 {
		if result.Figures, err = e.measurePaths(ctx); err != nil {
			return result, err
		}
	}
	if config.Peers == 0 {
		return result, nil
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	if err := e.open(ctx); err != nil {
		return result, fmt.Errorf("prepare two clusters with gateways: %w", err)
	}
	return result, e.measure(ctx, &result)
}

func (e *experiment) measure(ctx context.Context, result *Result) error {
	var err error
	if result.New, err = e.newPeers(ctx); err != nil {
		return fmt.Errorf("connect a new peer: %w", err)
	}
	for n := range e.Nodes {
		took, err := e.newNode(ctx, n)
		if err != nil {
			return fmt.Errorf("connect a new node: %w", err)
		}
		result.Nodes = append(result.Nodes, took)
	}
	if err := e.crowd(ctx); err != nil {
		return fmt.Errorf("give a gateway %d peers: %w", e.Peers, err)
	}
	if result.Idle, err = e.provider.gateway.Usage(); err != nil {
		return err
	}
	e.Say("a gateway of %d peers takes a gigabyte from one of them", e.Peers)
	if err := e.consumer.space.Flood(netip.AddrPortFrom(e.seen, port), flood); err != nil {
		return err
	}
	result.Loaded, err = e.provider.gateway.Usage()
	return err
}
