// SPDX-License-Identifier: Apache-2.0

// Package challenge is for challenges of authorities, which are never made.
package challenge

// Provider answers challenges.
type Provider any
