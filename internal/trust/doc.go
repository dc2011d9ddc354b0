// SPDX-License-Identifier: Apache-2.0

// Package trust is what clusters of different owners prove to each other: invitations and the claims that use them,
// sessions that only their receiver can open, and tombstones. It does no I/O. Whatever it reads may come from a peer and
// is bounded and checked.
//
// Signatures are Ed25519 (RFC 8032). What is sealed is an anonymous sealed box of NaCl (X25519, XSalsa20, Poly1305).
package trust
