// Package peering is the controller of Peers. For each it keeps what the peer needs in this cluster (its tenant
// namespace, and a consumer's identity and rights in it), greets the peer's API server from time to time, chooses the
// range in which this cluster sees the peer's pods, and says in the conditions of the Peer how all that stands.
//
// It also keeps the identity of this cluster itself: EnsureClusterInfo.
package peering
