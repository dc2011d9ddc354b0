// SPDX-License-Identifier: Apache-2.0

// Package testkit is what tests of controllers share: clusters in memory that record what is written and can be made to
// refuse it, a clock that stands still, builders for objects, and expectations that say what was found.
//
// A test makes a World, builds its controller on World.Home (and, for a provider, World.Away), calls Reconcile directly,
// steps the clock, and looks at objects, writes and events:
//
//	w := testkit.NewWorld(t, testkit.Peer("turin"))
//	c := New(w.Home.Client, w.Clock, w.Events)
//	w.Reconcile(c, "", "turin")
//	w.Home.ExpectWrites("create Node hanse-turin")
//
// Only tests import this package.
package testkit
