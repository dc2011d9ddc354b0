// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
)

const (
	wireguardPort = 51820
	simulated     = 1 // nodes of the provider, so that it has something to offer
	gatewayNode   = "gateway-node"
)

// A side is a cluster, its manager and its gateway, which has a network namespace of its own like that of a pod.
type side struct {
	*lab.Cluster
	manager, gateway *lab.Server
	space            *lab.Space
}

// open brings up two clusters with a gateway each, which do not know each other.
func (e *experiment) open(ctx context.Context) error {
	e.Say("two clusters with gateways")
	var err error
	if e.Pair, err = e.Bed.Pair(ctx, lab.PairConfig{Nodes: simulated}); err != nil {
		return err
	}
	e.consumer, e.provider = &side{Cluster: e.Consumer}, &side{Cluster: e.Provider}
	return errors.Join(e.openSide(ctx, e.consumer, "bench-gateway-1", 11), e.openSide(ctx, e.provider, "bench-gateway-2", 12))
}

func (e *experiment) openSide(ctx context.Context, s *side, name string, number byte) error {
	var err error
	if s.space, err = s.NewSpace(ctx, name, number); err != nil {
		return err
	}
	endpoint := netip.AddrPortFrom(s.space.Address, wireguardPort).String()
	if err := s.Install(ctx, "gateway.enabled=true", "gateway.endpoints[0]="+endpoint); err != nil {
		return err
	}
	if s.manager, err = s.StartManager(ctx, e.fail, "--gateway", "--gateway-endpoint="+endpoint); err != nil {
		return err
	}
	if err := s.node(ctx, gatewayNode, s.space.Address); err != nil {
		return err
	}
	pod := lab.Pod(v1alpha1.NetworkNamespace(v1alpha1.SystemNamespace), "hanse-gateway-"+name)
	pod.Spec.NodeName = gatewayNode // where no kubelet is
	if err := s.Create(ctx, pod); err != nil {
		return fmt.Errorf("create Pod %s in %s: %w", pod.Name, s.Name, err)
	}
	s.gateway, err = s.StartHanseIn(ctx, e.fail, s.space, gatewayNode, "gateway")
	return err
}

// node makes a Node that is reached at the address.
func (s *side) node(ctx context.Context, name string, at netip.Addr) error {
	node := &corev1.Node{}
	node.Name = name
	if err := s.Create(ctx, node); err != nil {
		return fmt.Errorf("create Node %s in %s: %w", name, s.Name, err)
	}
	before := client.MergeFrom(node.DeepCopy()) // others write to it, too
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.String()}}
	if err := s.Status().Patch(ctx, node, before); err != nil {
		return fmt.Errorf("give Node %s in %s its address: %w", name, s.Name, err)
	}
	return nil
}

// close ends all that open and the measurements have made.
func (e *experiment) close(ctx context.Context) error {
	servers, spaces := e.fabrics, e.nodes
	for _, s := range []*side{e.consumer, e.provider} {
		if s != nil {
			servers, spaces = append(servers, s.gateway, s.manager), append(spaces, s.space)
		}
	}
	for _, s := range servers {
		if s != nil {
			s.Stop()
		}
	}
	var failed []error
	for _, s := range spaces {
		if s != nil {
			failed = append(failed, s.Close(ctx))
		}
	}
	return errors.Join(append(failed, e.Bed.Down(context.WithoutCancel(ctx)))...)
}
