// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package framework

import "syscall"

// endWithParent does nothing: only Linux ends a process with its parent.
func endWithParent() *syscall.SysProcAttr { return nil }
