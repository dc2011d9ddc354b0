// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

const (
	accepted = "accepted"
	patience = time.Minute // for what takes two seconds
	often    = 10 * time.Millisecond
)

// newPeers has the clusters become peers several times. In the end they are.
func (e *experiment) newPeers(ctx context.Context) (measure.Sample, error) {
	var all measure.Sample
	for n := range max(1, e.Times) {
		if n > 0 {
			if err := e.Consumer.Unpeer(ctx, e.Provider); err != nil {
				return nil, err
			}
		}
		took, err := e.newPeer(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// newPeer peers the two clusters, and returns how long it took from both having accepted the offer to the first echo through
// the tunnel.
func (e *experiment) newPeer(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	given, err := e.Provider.Observe(ctx, &v1alpha1.AdvertisementList{}, nil, lab.Milestone{Name: accepted, Reached: lab.Accepted})
	if err != nil {
		return 0, err
	}
	defer given.Close()
	taken, err := e.Consumer.Observe(ctx, &v1alpha1.AdvertisementList{}, nil, lab.Milestone{Name: accepted, Reached: lab.TakenIn})
	if err != nil {
		return 0, err
	}
	defer taken.Close()

	var first time.Time
	both, group := errgroup.WithContext(ctx)
	both.Go(func() error { return e.Consumer.Peer(group, e.Provider, "--wait=false") })
	both.Go(func() error {
		var err error
		if e.seen, err = e.consumer.gatewayOf(group, e.Provider.Name); err == nil {
			first, err = e.consumer.space.AwaitEcho(group, e.seen)
		}
		return err
	})
	both.Go(func() error { return errors.Join(given.Wait(group, accepted, 1), taken.Wait(group, accepted, 1)) })
	if err := both.Wait(); err != nil {
		return 0, err
	}
	return first.Sub(later(given, taken)), nil
}

// later returns the last moment at which one of them accepted.
func later(observers ...*lab.Observer) time.Time {
	var last time.Time
	for _, o := range observers {
		for _, at := range o.Moments(accepted) {
			if at.After(last) {
				last = at
			}
		}
	}
	return last
}

// gatewayOf waits for the Connection to a peer, and returns the address of the peer's gateway as seen from here.
func (s *side) gatewayOf(ctx context.Context, peer string) (netip.Addr, error) {
	var seen netip.Addr
	err := lab.Until(ctx, s.Name+" has a Connection", often, 5*patience, func(ctx context.Context) error {
		c := &v1alpha1.Connection{}
		key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.ConnectionName}
		if err := s.Get(ctx, key, c); err != nil {
			return err
		}
		if len(c.Spec.GatewayAddresses) == 0 {
			return errors.New("the peer's gateway has no address")
		}
		var err error
		seen, err = netip.ParseAddr(string(c.Spec.GatewayAddresses[0]))
		return err
	})
	return seen, err
}

// newNode starts the fabric of a node of the consumer that has just come, and returns how long it took from then until the
// gateway answered the node through the VXLAN. The gateway passes no echoes on for nodes, so it is asked itself.
func (e *experiment) newNode(ctx context.Context, number int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := fmt.Sprintf("bench-node-%d", number)
	space, err := e.consumer.NewSpace(ctx, name, byte(20+number)) //nolint:gosec // there are few
	if err != nil {
		return 0, err
	}
	e.nodes = append(e.nodes, space)
	own, err := e.consumer.ownGateway(ctx)
	if err != nil {
		return 0, err
	}
	begin := e.clock.Now()
	fabric, err := e.Consumer.StartHanseIn(ctx, e.fail, space, name, "fabric")
	if err != nil {
		return 0, err
	}
	e.fabrics = append(e.fabrics, fabric)
	if err := e.consumer.node(ctx, name, space.Address); err != nil {
		return 0, err
	}
	err = lab.Until(ctx, "the node has a VXLAN", often, patience, func(ctx context.Context) error {
		return space.Route(ctx, own, e.consumer.space.Address, "hanse-vx")
	})
	if err != nil {
		return 0, err
	}
	first, err := space.AwaitEcho(ctx, own)
	return first.Sub(begin), err
}

// ownGateway returns the gateway's address in its own cluster: the first of the range of Services.
func (s *side) ownGateway(ctx context.Context) (netip.Addr, error) {
	kubernetes := &corev1.Service{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: "default", Name: "kubernetes"}, kubernetes); err != nil {
		return netip.Addr{}, err
	}
	first, err := netip.ParseAddr(kubernetes.Spec.ClusterIP)
	return first.Prev(), err
}
