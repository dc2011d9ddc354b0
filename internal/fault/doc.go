// SPDX-License-Identifier: Apache-2.0

// Package fault ends a process at a named point, as a crash there would. The fault suite uses it to show that any two
// writes of the offload path may have a crash between them.
//
// A point is one line between two writes. It costs one atomic load, unless a hidden flag of the process armed it.
package fault
