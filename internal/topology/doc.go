// SPDX-License-Identifier: Apache-2.0

// Package topology reads from the objects of this cluster what plans of its network are made of, for the gateway and for the
// fabric on each node alike, and tells them when that changes.
package topology
