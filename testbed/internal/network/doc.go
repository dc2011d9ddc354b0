// SPDX-License-Identifier: Apache-2.0

// Package network builds the bridge that plays the Internet, the network namespace of each node with its link to the
// bridge, and the packet filter that keeps traffic on the bridge and cuts clusters off from each other.
//
// What to do is rendered as scripts for ip(8) and nft(8) by functions without side effects; the rest runs them.
package network
