// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
)

// A Protocol says which parts of Hanse's protocol are spoken with a peer. Each part that a peer does not speak is done at
// home in another way, or not at all.
//
// +kubebuilder:object:generate=false
type Protocol struct {
	// Identity: the peer says who it is, what it runs, and lets us measure how fast data comes from it. Otherwise it is
	// asked for our rights alone.
	Identity bool
	// Sessions: the two clusters invite and join each other, renew credentials, and leave each other by messages. Otherwise
	// an administrator brings the credentials, and we remove what we have there when we leave.
	Sessions bool
	// Advertisements: the peer makes its own offers. Otherwise package agentless makes them at home, and no policies are asked.
	Advertisements bool
	// Mappings: the peer makes a twin for each NamespaceMapping. Otherwise pods run in spec.namespaces of the Peer.
	Mappings bool
	// ShadowPods: the peer runs a pod for each ShadowPod. Otherwise package agentless makes ReplicaSets and Jobs of them.
	ShadowPods bool
	// Requests: the peer reserves room for each Request, and makes an offer for each Quote. Otherwise no component of an Application goes
	// there.
	Requests bool
	// Accounts: the peer counts what we use there, and takes what we have counted. Otherwise our count stands alone.
	Accounts bool
	// Copies: ConfigMaps and Secrets that pods use are copied to the peer.
	Copies bool
	// Objects: the peer takes copies of objects of other kinds.
	Objects bool
	// Claims: the peer keeps storage for each ShadowClaim.
	Claims bool
	// Network: pods of the two clusters can be connected. Tokens of service accounts go to no other peer.
	Network bool
}

// Protocol returns which parts of Hanse's protocol are spoken with the peer.
func (p *Peer) Protocol() Protocol {
	if p.Agentless() {
		return Protocol{Copies: p.Spec.Copies == CopiesConfiguration}
	}
	return Protocol{
		Identity: true, Sessions: true, Advertisements: true, Mappings: true, ShadowPods: true, Requests: true, Accounts: true, Copies: true,
		Objects: true, Claims: true, Network: true,
	}
}

// AgentlessClusterID returns the id by which the cluster home knows its Agentless peer of that name, which has none of its own.
// No two homes know a cluster by the same id, so that all of them can share a namespace there.
func AgentlessClusterID(home, peer string) string {
	sum := sha256.Sum256([]byte(home + "\n" + peer))
	return "agentless-" + hex.EncodeToString(sum[:])[:20]
}
