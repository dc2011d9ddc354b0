// SPDX-License-Identifier: Apache-2.0

// Package certificate is for certificates of authorities, of which there are none.
package certificate

import (
	"context"
	"errors"

	"github.com/go-acme/lego/v5/certcrypto"
)

// Resource is a certificate.
type Resource struct {
	ID                      string
	Domains                 []string
	PrivateKey, Certificate []byte
}

// ObtainRequest asks for one.
type ObtainRequest struct {
	Domains, EmailAddresses  []string
	Bundle, EnableCommonName bool
	Profile, PreferredChain  string
	KeyType                  certcrypto.KeyType
}

// RenewOptions say how to renew one.
type RenewOptions struct {
	Bundle, EnableCommonName bool
	EmailAddresses           []string
	Profile, PreferredChain  string
}

// Certifier gets none.
type Certifier struct{}

// Obtain always fails.
func (Certifier) Obtain(context.Context, ObtainRequest) (*Resource, error) {
	return nil, errors.ErrUnsupported
}

// Renew always fails.
func (Certifier) Renew(context.Context, Resource, *RenewOptions) (*Resource, error) {
	return nil, errors.ErrUnsupported
}
