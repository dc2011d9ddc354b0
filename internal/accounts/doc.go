// SPDX-License-Identifier: Apache-2.0

// Package accounts counts what peers use here and what this cluster uses at peers, keeps it in Accounts, one for each day, and compares
// it with what the other side has counted.
//
// What pods hold, and what is reserved for them, is metered while it changes (feed.go). Each time a period is over, the result is added
// to the Account (count.go). As provider we also make the Account into whose spec the consumer writes its claim; as consumer we write
// that claim over the link, and keep a copy of what the provider says (claim.go). All state is in Accounts: after a restart, pods are
// counted from where the Account ends, or from when they began.
package accounts
