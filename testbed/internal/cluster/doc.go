// SPDX-License-Identifier: Apache-2.0

// Package cluster brings one cluster to the state that its plan describes, and takes it down again.
//
// It looks at what there is (processes, namespaces, files, the API) each time and remembers nothing, so that bringing up
// a cluster again starts only what is missing or different.
package cluster
