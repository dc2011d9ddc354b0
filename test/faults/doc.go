// SPDX-License-Identifier: Apache-2.0

// Package faults is the fault suite: a seeded random load of pods on three clusters while their components are killed,
// their links are cut and their clocks are wrong, and a checker that says what must not have happened.
//
// The plan, the readers of logs and the checker are pure and have tests of their own, which run without clusters.
// hack/faults.sh runs the suite itself, TestFaults, on clusters of the testbed.
package faults
