// Package peering is the controller of Peers. For each it keeps what the peer needs in this cluster (its tenant
// namespace, and in it what this cluster tells of itself and a bound for what a consumer can make), greets the peer's API
// server from time to time, chooses the range in which this cluster sees the peer's pods, and says in the conditions of
// the Peer how all that stands. If an administrator wants it, it measures the bandwidth to providers too.
//
// It also parts from peers. A Peer that is deleted waits until each side has ended what it has at the other, and when the
// other side parts, our own Peer is deleted. Parting by force waits for nobody, and leaves a signed tombstone for the
// peer to find when it comes back; the undertaker delivers it where it can, and ends it after its time.
//
// And it keeps the identity of this cluster itself: EnsureClusterInfo.
package peering
