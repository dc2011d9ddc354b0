// SPDX-License-Identifier: Apache-2.0

// Package exchange holds what clusters exchange and how it is judged: what a provider has to spare and for whom, what
// an advertisement must look like to be believed, what it costs, how it becomes a part of another, the table of all
// offers, and how they compare for a pod or for a namespace.
//
// Everything here is a value or a function of values: no client, no clock, no log.
package exchange
