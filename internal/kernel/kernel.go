// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
)

// DefaultVXLANPort is the UDP port of the VXLAN between gateway and nodes. It is not one that CNIs use.
const DefaultVXLANPort = 4786

// ErrNoIPv6 means that the kernel, or this network namespace, has no IPv6.
var ErrNoIPv6 = errors.New("there is no IPv6")

// An Identity is what WireGuard of this cluster is known by.
type Identity struct {
	PrivateKey [32]byte // Curve25519
	Port       int      // UDP, on all addresses
}

// A TunnelState is what WireGuard says of one peer.
type TunnelState struct {
	Peer      string
	Endpoint  netip.AddrPort // in use; not valid if there is none yet
	Handshake time.Time      // the last; zero if there was none
	Received  int64          // bytes, since the peer was added
	Sent      int64
}

// A GatewayConfig is what no plan decides.
type GatewayConfig struct {
	VXLANPort int         // UDP; DefaultVXLANPort if 0; the same at all nodes
	Log       logr.Logger // hears of packets that WireGuard does not understand, at higher verbosity
}

// A NodeConfig is what no plan decides.
type NodeConfig struct {
	VXLANPort int // UDP; DefaultVXLANPort if 0; the same at the gateway
}
