// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Environment variables by which test/integration/run says where the clusters are.
const (
	stateVariable   = "HANSE_INTEGRATION"         // prefix of the folders of state, one for each set of clusters
	setsVariable    = "HANSE_INTEGRATION_SETS"    // how many clusters each set has, such as 4,2,2
	resultsVariable = "HANSE_INTEGRATION_RESULTS" // where to write logs and objects of tests that failed
)

// A set is a set of clusters that one package uses at a time.
type set struct {
	state string // folder of the testbed
	lock  *os.File
}

// lockSet waits for a set that has as many clusters and that no other process uses. Sets that are larger than need be are
// left to packages that need them.
func lockSet(prefix string, clusters int) (*set, error) {
	candidates, err := setsOf(clusters)
	if err != nil {
		return nil, err
	}
	for {
		for _, number := range candidates {
			found, err := tryLock(fmt.Sprintf("%s-%d", prefix, number))
			if found != nil || err != nil {
				return found, err
			}
		}
		time.Sleep(100 * time.Millisecond) // between two looks
	}
}

// setsOf returns the numbers of the smallest sets that have enough clusters.
func setsOf(clusters int) (numbers []int, err error) {
	smallest := 0
	for i, text := range strings.Split(os.Getenv(setsVariable), ",") {
		size, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", setsVariable, err)
		case size < clusters || smallest != 0 && size > smallest:
			continue
		case size != smallest:
			numbers, smallest = nil, size
		}
		numbers = append(numbers, i+1)
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("no set of %s=%s has %d clusters", setsVariable, os.Getenv(setsVariable), clusters)
	}
	return numbers, nil
}

// tryLock locks a set, unless another process uses it. The lock ends with this process at the latest.
func tryLock(state string) (*set, error) {
	file, err := os.OpenFile(state+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		closeErr := file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		return nil, errors.Join(err, closeErr)
	}
	return &set{state: state, lock: file}, nil
}

func (s *set) unlock() { _ = s.lock.Close() } // which ends the lock
