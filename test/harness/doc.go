// SPDX-License-Identifier: Apache-2.0

// Package harness is what the tests on real clusters share: how they reach a cluster of the testbed, run programs, install
// Hanse, make clusters peers, and wait for an effect. The stories (test/e2e) and the fault suite (test/faults) use it.
package harness
