// SPDX-License-Identifier: Apache-2.0

// Package advertisement publishes what this cluster offers to each consumer, and takes in what providers offer to it.
//
// The Publisher keeps one Advertisement in the tenant namespace of each consumer, in this cluster. The Receiver watches
// the one that each provider keeps for us, keeps the newest good one as a copy in this cluster, and answers in
// the status of both. The Peer controller says in condition Advertised what the status of the copy does.
//
// The object always holds the whole offer. A full message writes all of it; a partial one, which is also the renewal, only
// what is free and when that was said. What is offered, and what of it is believed, is asked of the policies: see policy.Decider.
package advertisement
