// Package session is the consumer's side of a peering: it uses the invitation that a peer gave us, and keeps the session
// that came of it. For each Peer of role Provider it looks into the tenant namespace: what lies in Secret hanse-join is
// used (the peer's key is pinned, a claim is made over there, its answer becomes Secret hanse-link), and the credentials
// in hanse-link are renewed long before they end. Condition Session of the Peer says how that stands.
//
// Everything that must outlive this process is in those two Secrets, so that whatever was begun goes on after a restart.
package session
