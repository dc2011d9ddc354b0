// SPDX-License-Identifier: Apache-2.0

// Package network measures what the network of peers costs against the same network without Hanse's tables, and how soon it
// carries a first packet.
package network
