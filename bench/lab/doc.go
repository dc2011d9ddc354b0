// SPDX-License-Identifier: Apache-2.0

// Package lab is what experiments are made with: the clusters of a testbed, Hanse's servers as processes of this
// machine, watches that note when something was reached, and meters of memory and processor time.
package lab
