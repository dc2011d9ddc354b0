// Package invitation is the provider's side of becoming peers. For each Peer of role Consumer it makes the invitation
// that the Peer asks for, judges the PeeringClaim by which the consumer uses it, gives the consumer its identity, its
// session and its rights in the tenant namespace, and takes the rights back while the Peer is suspended. It says in
// condition Joined of the Peer how that stands.
//
// It also keeps the list of consumers in the FlowSchema by which their requests share the API server: FlowSchemas.
package invitation
