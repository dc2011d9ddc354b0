// SPDX-License-Identifier: Apache-2.0

// Package process starts processes that outlive their parent, finds them again, and ends them.
//
// A process is known by its id together with the time that it started and the boot that this was in, so that a recycled
// id is never taken for it. Processes that nobody wrote down are found by where they are: in a network namespace, or in
// a control group, or descended from one that is.
package process
