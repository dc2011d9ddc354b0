// SPDX-License-Identifier: Apache-2.0

// Package framework is what the stories of test/e2e share: the clusters and how they are started, what each story needs,
// and the steps and expectations that several capabilities use.
//
// A story is a test on real clusters that says in its name what must be true. The packages beside this one hold the stories of one
// capability each. The program test/e2e/runner selects stories, starts the clusters that these need, and runs them.
package framework
