// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/wait"
)

const lockPace = 50 * time.Millisecond

// lock waits until nobody else holds the lock on a file, which it makes if need be, or on a folder. The returned
// function gives it back.
func lock(ctx context.Context, path string) (func(), error) {
	var held *os.File
	err := wait.Until(ctx, lockPace, func() (bool, error) {
		file, err := tryLock(path)
		held = file
		return file != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = held.Close() }, nil
}

// tryLock returns nil if somebody else holds the lock, or has just removed the file that we have opened.
func tryLock(path string) (*os.File, error) {
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && same(file, path) {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || err == nil {
		return nil, nil //nolint:nilnil // documented above
	}
	return nil, err
}

func open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return os.Open(path) //nolint:gosec // a folder of the machine or of the testbed's own
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // the folder of state holds logs for everyone
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a file of the testbed's own
}

func same(file *os.File, path string) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(held, now)
}
