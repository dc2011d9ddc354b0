// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"io/fs"
	"syscall"
)

// Unsupported reports whether an error of Apply means that this kernel lacks something, rather than that something went wrong.
func Unsupported(err error) bool {
	var path *fs.PathError
	if errors.As(err, &path) && errors.Is(path, fs.ErrNotExist) {
		return true
	}
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EPROTONOSUPPORT)
}
