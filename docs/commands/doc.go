// SPDX-License-Identifier: Apache-2.0

// Package commands compares documentation with a program's tree of commands: the tables of flags in the reference, and the
// commands that pages show. The tests of the programs use the package, because the trees are in their main packages.
package commands
