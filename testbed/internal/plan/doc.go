// SPDX-License-Identifier: Apache-2.0

// Package plan decides, from what was asked for and nothing else, the names and addresses of everything that a
// testbed consists of: bridge, network namespaces, links, control groups, ports and folders. All of it follows from
// the testbed's slot, a cluster's index and a worker's number, so that whoever knows the slot finds every trace of a
// testbed again, even when its folder of state is gone.
package plan
