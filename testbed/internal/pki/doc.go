// SPDX-License-Identifier: Apache-2.0

// Package pki makes the keys and certificates of a cluster. They are for a cluster that is thrown away: valid for ten
// years, kept unencrypted, and made once.
package pki
