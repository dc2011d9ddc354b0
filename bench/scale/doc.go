// SPDX-License-Identifier: Apache-2.0

// Package scale measures what many offloaded pods cost `hanse kubelet`: how soon it works again after it was killed, what
// it takes while they run and nothing happens, what it asks for when it starts, and whether many that have come and gone
// leave something behind.
package scale
