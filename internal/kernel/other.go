// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kernel

import (
	"errors"
	"time"

	"github.com/hanse-dev/hanse/internal/overlay"
)

var errNotLinux = errors.New("only Linux can be a gateway or a node of the fabric")

// Forward6 returns an error.
func Forward6() error { return errNotLinux }

// Liberal returns an error.
func Liberal() error { return errNotLinux }

// A Gateway makes one network namespace the gateway of its cluster.
type Gateway struct{}

// NewGateway makes a Gateway and changes nothing.
func NewGateway(GatewayConfig) *Gateway { return &Gateway{} }

// Apply returns an error.
func (*Gateway) Apply(Identity, overlay.Layout) error { return errNotLinux }

// Forward6 returns an error.
func (*Gateway) Forward6() error { return errNotLinux }

// Tunnels returns an error.
func (*Gateway) Tunnels() ([]TunnelState, error) { return nil, errNotLinux }

// Dial returns an error.
func (*Gateway) Dial(time.Time) (time.Time, error) { return time.Time{}, errNotLinux }

// Redial returns an error.
func (*Gateway) Redial(string, time.Time) error { return errNotLinux }

// Close does nothing.
func (*Gateway) Close() error { return nil }

// Remove returns an error.
func (*Gateway) Remove() error { return errNotLinux }

// A Node makes a node lead what is for peers to the gateway.
type Node struct{}

// NewNode makes a Node and changes nothing.
func NewNode(NodeConfig) *Node { return &Node{} }

// Apply returns an error.
func (*Node) Apply(overlay.NodeLayout) error { return errNotLinux }

// Remove returns an error.
func (*Node) Remove() error { return errNotLinux }
