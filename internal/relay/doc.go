// SPDX-License-Identifier: Apache-2.0

// Package relay passes on packets of WireGuard between peers whose gateways do not reach each other. It cannot read them.
package relay
