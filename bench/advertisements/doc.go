// SPDX-License-Identifier: Apache-2.0

// Package advertisements measures how long Hanse takes to turn advertisements into virtual nodes. One API server without
// Hanse's manager plays all providers; their advertisements are made by hand.
package advertisements
