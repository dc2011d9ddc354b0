// SPDX-License-Identifier: Apache-2.0

// Package fabric makes a node lead what is for peers to the active gateway, and guards the pods of peers that run on it. It leaves
// the network of the node as it was when the fabric is taken away.
package fabric
