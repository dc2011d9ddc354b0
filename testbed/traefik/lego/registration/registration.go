// SPDX-License-Identifier: Apache-2.0

// Package registration is for accounts at authorities, which cannot be made.
package registration

import (
	"context"
	"errors"

	"github.com/go-acme/lego/v5/acme"
)

type (
	// RegisterOptions say for what to register.
	RegisterOptions struct{ TermsOfServiceAgreed bool }
	// RegisterEABOptions say so, and under which account elsewhere.
	RegisterEABOptions struct {
		TermsOfServiceAgreed bool
		Kid, HmacEncoded     string
	}
	// Registrar makes no account.
	Registrar struct{}
)

// Register always fails.
func (Registrar) Register(context.Context, RegisterOptions) (*acme.ExtendedAccount, error) {
	return nil, errors.ErrUnsupported
}

// RegisterWithExternalAccountBinding always fails.
func (Registrar) RegisterWithExternalAccountBinding(context.Context, RegisterEABOptions) (*acme.ExtendedAccount, error) {
	return nil, errors.ErrUnsupported
}
