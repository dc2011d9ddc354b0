// SPDX-License-Identifier: Apache-2.0

// Package component decides how each component of a cluster is started: its command line, its configuration files and
// where it runs. It has no side effects, so that two calls can be compared: a component whose command line or files
// would differ from those that it was started with is started anew.
package component
