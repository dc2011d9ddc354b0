// SPDX-License-Identifier: Apache-2.0

// Package acme is what accounts at an authority consist of: nothing.
package acme

// Account is one at an authority.
type Account struct{}

// ExtendedAccount is one and where it is found.
type ExtendedAccount struct {
	Account

	Location string
}
