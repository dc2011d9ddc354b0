// SPDX-License-Identifier: Apache-2.0

// Package tlsalpn01 is for challenges by TLS, which are never made.
package tlsalpn01

import (
	"errors"
	"time"
)

// ACMETLS1Protocol is what an authority would ask for.
const ACMETLS1Protocol = "acme-tls/1"

// ChallengeBlocks always fails.
func ChallengeBlocks(string, string) (cert, key []byte, err error) {
	return nil, nil, errors.ErrUnsupported
}

// SetDelay changes nothing.
func SetDelay(time.Duration) any { return nil }
