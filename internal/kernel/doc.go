// SPDX-License-Identifier: Apache-2.0

// Package kernel makes the Linux kernel look like a plan of package overlay: a Gateway like an overlay.Layout, a Node like an
// overlay.NodeLayout. It decides nothing about the network between clusters.
//
// Each Apply looks at what the kernel has and changes only what differs, so it can be called as often as one likes, and a new
// process takes over what an earlier one left behind. Remove takes everything away again. What is ours is known by its name
// (the interfaces hanse-wg and hanse-vx, the nftables table hanse) or by its number (routing tables, the routing protocol).
//
// Everything happens in the network namespace of the calling thread. Only Linux has what it takes: elsewhere each call
// returns an error.
package kernel
