// SPDX-License-Identifier: Apache-2.0

// Package lego is for clients of authorities, which cannot be made.
package lego

import (
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"github.com/go-acme/lego/v5/certificate"
	"github.com/go-acme/lego/v5/challenge"
	"github.com/go-acme/lego/v5/challenge/dns01"
	"github.com/go-acme/lego/v5/registration"
)

// DirectoryURLLetsEncrypt names no authority.
const DirectoryURLLetsEncrypt = ""

// Config is that of a client.
type Config struct {
	CADirURL, UserAgent string
	HTTPClient          *http.Client
	Certificate         struct{ Timeout time.Duration }
}

// NewConfig returns an empty one.
func NewConfig(any) *Config { return &Config{} }

// Client would ask an authority.
type Client struct {
	Challenge    Challenges
	Registration registration.Registrar
	Certificate  certificate.Certifier
}

// NewClient always fails.
func NewClient(*Config) (*Client, error) { return nil, errors.ErrUnsupported }

// Challenges are never made.
type Challenges struct{}

// SetDNS01Provider always fails.
func (Challenges) SetDNS01Provider(challenge.Provider, ...dns01.ChallengeOption) error {
	return errors.ErrUnsupported
}

// SetHTTP01Provider always fails.
func (Challenges) SetHTTP01Provider(challenge.Provider, ...any) error { return errors.ErrUnsupported }

// SetTLSALPN01Provider always fails.
func (Challenges) SetTLSALPN01Provider(challenge.Provider, ...any) error {
	return errors.ErrUnsupported
}

// CreateCertPool always fails.
func CreateCertPool([]string, bool) (*x509.CertPool, error) { return nil, errors.ErrUnsupported }
