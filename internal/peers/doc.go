// SPDX-License-Identifier: Apache-2.0

// Package peers owns everything about the connections of this cluster to its peers: links, whether a peer answers, and the
// mirrors of what is followed there. Both processes use it.
//
// A link is an authenticated connection to the API server of one peer, limited to what lies in that peer's tenant and twin
// namespaces. It is made from the kubeconfig in the Secret hanse-link of the peer's tenant namespace, and made anew when
// that Secret changes, unless nothing but the token does. A claimant is the narrower connection of a cluster that was invited
// and has no link yet.
//
// A controller that needs to know what is at peers watches it as a source, and reads it from mirrors:
//
//	var records = &peers.Subject{Example: &v1alpha1.ShadowPod{}} // what it follows: one variable for each kind
//
//	builder.WatchesRawSource(peers.LinkChanges(links, enqueuePeer)). // a link was made, closed, cut off, or is back
//		WatchesRawSource(peers.Changes(links, peers.Mappings, enqueueNamespace)).
//		WatchesRawSource(peers.Changes(links, records, enqueueRecord))
//
//	link, open := c.links.Get(peer)                   // in Reconcile; Ensure makes it, which internal/peering does
//	if !open || link.Err() != nil { return }          // ask a peer that does not answer for nothing: the source calls back
//	mirror := link.FollowTwin(records, homeNamespace) // idempotent; nil without a twin; Unfollow ends it for everybody
//	record, found := mirror.Named(name)               // what it shows is old while mirror.HasSynced() is false
//	err := link.Client().Create(ctx, wanted)          // writes go to the peer itself
//
// Nothing has to be closed or remembered: mirrors end with their link or their twin, and sources call again for what is
// there. In tests, package peerstest has peers in memory whose mirrors show each write at once.
//
// Each peer has a Budget, over all links to it. What exceeds it is not kept: the mirror fails with ErrOverBudget and is read
// again after a pause that grows, and Links.OverBudget says why. A request beyond the Budget fails with a BusyError at
// once: try it again when that says, and do not wait for it in a worker. Ask Links.Pace before a write at home that news of a
// peer causes, and Link.Aside before work for which no pod waits.
//
// Everything that comes over a link is a stranger's word: kubeconfigs may name neither programs nor files, answers are
// bounded in size and time, redirects and waiting times that the other side asks for are ignored, and a peer that
// misbehaves harms only its own link and its own mirrors.
package peers
