// SPDX-License-Identifier: Apache-2.0

// Command runner runs the stories of test/e2e on real clusters, as root: it is built as bin/e2e.
//
// It finds the stories that are selected, builds the test binaries of their packages, and groups the stories by the shape of their
// clusters. It starts the clusters of each shape once, as far as the budget of clusters allows, and runs each story as a process of its
// own. Stories that share clusters run side by side, the others one by one. Clusters that no story needs any more are ended at once.
//
// The results are in a folder: e2e.xml (JUnit), the log of each story, and for each story that failed its objects, events and logs.
package main
