// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A credential is how one logs in to the cache and to the database.
type credential struct{ user, password string }

// A credentialFile has a credential in each line, user:password, the newest first. Servers take each of them, and clients try one after the
// other. So while a new one comes to all pods, sooner to some than to others, everybody gets in.
type credentialFile string

// read reads the file anew each time, because it may change.
func (f credentialFile) read() ([]credential, error) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return nil, err
	}
	var all []credential
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		user, password, ok := strings.Cut(line, ":")
		if !ok || user == "" || password == "" {
			return nil, fmt.Errorf("%s: line %d is not user:password", f, len(all)+1)
		}
		all = append(all, credential{user, password})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s is empty", f)
	}
	return all, nil
}

// accepts tells whether one may log in with the credential.
func (f credentialFile) accepts(c credential) (bool, error) {
	all, err := f.read()
	return slices.Contains(all, c), err
}

// firstAccepted logs in with one credential after the other until one is taken.
func firstAccepted(f credentialFile, login func(credential) error) error {
	all, err := f.read()
	if err != nil {
		return err
	}
	for _, c := range all {
		if err = login(c); err == nil {
			return nil
		}
	}
	return err
}
