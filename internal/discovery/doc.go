// SPDX-License-Identifier: Apache-2.0

// Package discovery tells other clusters that this one is there, and finds them: by multicast DNS (RFC 6762) on the
// local network, by DNS SRV records (RFC 2782) of a domain elsewhere. It is off by default.
//
// Whoever is on the network can say anything there. So what is found becomes a Peer without any role, which gives
// nobody anything, until administrators of both clusters invite and join.
package discovery
