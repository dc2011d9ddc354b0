// SPDX-License-Identifier: Apache-2.0

// Package policies holds Hanse's Rego modules: the built-in defaults, and a library to pick from.
package policies

import "embed"

// Files has default/<question>.rego, what is asked where there is no policy, and library/<name>.rego, modules for an
// administrator to start from. Each has its tests beside it.
//
//go:embed default library
var Files embed.FS
