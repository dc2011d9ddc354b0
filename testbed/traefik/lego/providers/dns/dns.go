// SPDX-License-Identifier: Apache-2.0

// Package dns knows no DNS provider.
package dns

import (
	"errors"

	"github.com/go-acme/lego/v5/challenge"
)

// NewDNSChallengeProviderByName always fails.
func NewDNSChallengeProviderByName(string) (challenge.Provider, error) {
	return nil, errors.ErrUnsupported
}
