// SPDX-License-Identifier: Apache-2.0

// Package peering is the controller of Peers: one controller, one observation of each Peer, and steps that are done in a
// fixed order.
//
//	tenantStep     keeps the tenant namespace and what belongs in it       tenant.go
//	inviteStep     makes invitations for consumers and answers claims      invite.go, invitation.go, claim.go
//	calls          talks to the peer beside the reconciles                 observe.go
//	  sessionStep  uses the invitation of a provider, and keeps our        join.go, offer.go, renew.go
//	               session there alive
//	  probeStep    asks a provider to introduce itself, and measures       probe.go
//	  leaveStep    parts from a peer whose Peer is deleted                 leave.go, tombstone.go
//	followStep     deletes the Peer of a cluster that has parted from us   tombstone.go
//	addressStep    chooses the ranges in which we see a provider's         addresses.go
//
// In the end the status is written once (status.go), with conditions that are made of what was observed (agreement.go,
// conditions.go). What is left of a former peer is looked after in the same controller (tombstone.go), and so
// is the list of consumers in the FlowSchema (flowschema.go).
//
// A peer that does not answer keeps nobody waiting: each peer has a goroutine of its own while we talk to it, and what is
// found out is remembered as an observation with its time.
//
// The package also keeps the identity of this cluster itself: EnsureClusterInfo.
package peering
