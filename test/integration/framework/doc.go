// SPDX-License-Identifier: Apache-2.0

// Package framework is what integration tests share. It gives a package of tests control planes of its own: real API servers
// and etcds, with KWOK nodes in place of machines, and Hanse's servers as processes with the rights of their service accounts.
//
// A package of tests calls Main from its TestMain. Main waits for a free set of control planes, installs Hanse in them as the
// package needs it, makes them peers, runs the tests, and stops what it has started. The clusters stay for the next package;
// test/integration/run ends them.
package framework
