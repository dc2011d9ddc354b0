// SPDX-License-Identifier: Apache-2.0

// Package gateway runs the gateway of this cluster: it makes the kernel of its pod look like the plan for all Connections, says
// hello to peers, measures how the tunnels are and writes that into the status of the Connections, and answers what pods of
// peers ask their name servers. Of several gateways one is active, by a Lease.
package gateway
