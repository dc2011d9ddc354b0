// SPDX-License-Identifier: Apache-2.0

// Package version tells which Hanse this is.
package version

// Version is the version of this build, such as v0.1.0. The linker sets it; "dev" is a build by hand.
var Version = "dev"
