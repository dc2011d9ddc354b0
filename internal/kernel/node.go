// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A Node makes a node lead what is for peers to the gateway, and guards the pods of peers. Its methods must not be called at
// the same time.
type Node struct{ config NodeConfig }

// NewNode makes a Node and changes nothing.
func NewNode(config NodeConfig) *Node {
	if config.VXLANPort == 0 {
		config.VXLANPort = DefaultVXLANPort
	}
	return &Node{config}
}

// Apply makes the kernel look like the layout. It may be called again with the same one, which changes nothing. Guests are
// guarded, and what has no way to a gateway is dropped, before there is a way. After an error as much of the layout holds as
// could be made; call it again.
func (n *Node) Apply(layout overlay.NodeLayout) error {
	for _, t := range []table{n.table(layout), n.bridgeTable(layout)} {
		if err := t.apply(); err != nil {
			return err
		}
	}
	failed := []error{ensureRules(n.policies(layout), familiesOf(slices.Concat(layout.Routes, layout.Here)))}
	if !layout.Gateway.IsValid() {
		return errors.Join(append(failed, ensureRoutes(blackholes(layout.Routes)))...)
	}
	gateway := station{mac: gatewayMAC, outer: layout.Gateway, inner: layout.Through}
	vxlan, err := ensureVXLAN(n.config.VXLANPort, layout.MTU, nodeMAC(layout.Inner), []station{gateway})
	if vxlan == nil {
		return errors.Join(append(failed, ensureRoutes(blackholes(layout.Routes)), err)...)
	}
	return errors.Join(append(failed, err, ensureRoutes(nodeRoutes(layout, gateway, vxlan)))...)
}

// policies lead what is for peers to the gateway. What is in the VXLAN for a gateway on this node that has just gone finds no route
// to a pod, and must not take the default route instead: out of the cluster, and in the clear.
func (n *Node) policies(layout overlay.NodeLayout) []policy {
	all := []policy{{table: peersTable}}
	for _, p := range layout.Here {
		all = append(all,
			policy{vxlan: n.config.VXLANPort, to: p, table: unix.RT_TABLE_MAIN},
			policy{vxlan: n.config.VXLANPort, to: p})
	}
	return all
}

func nodeRoutes(layout overlay.NodeLayout, gateway station, vxlan netlink.Link) []route {
	all := blackholes(layout.Routes)
	for _, f := range families {
		hop, inner := gateway.hop(f), f.first(layout.Inner)
		if !hop.IsValid() {
			continue
		}
		for _, p := range f.prefixes(layout.Routes) {
			all = append(all, route{table: peersTable, to: p, link: vxlan, via: hop, from: inner})
		}
	}
	return all
}

// Remove takes away all that any Node made in this network namespace, and changes nothing if there is nothing.
func (n *Node) Remove() error {
	if err := removeAll(nftables.TableFamilyINet, nftables.TableFamilyBridge); err != nil {
		return fmt.Errorf("remove the fabric of this node: %w", err)
	}
	return nil
}
