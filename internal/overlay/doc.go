// SPDX-License-Identifier: Apache-2.0

// Package overlay decides what the network between clusters looks like: in which ranges a peer is seen, and which tunnels,
// routes, translations and permissions the gateway and each node must have. It takes values and returns values. Equal input
// gives equal output, sorted, so that the kernel is changed only where the plan has changed.
package overlay
