// SPDX-License-Identifier: Apache-2.0

package framework

import "syscall"

// endWithParent makes the kernel end a process with the one that has started it, also when that one was killed.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
