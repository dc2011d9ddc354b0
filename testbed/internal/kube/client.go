// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// manager is the name under which the testbed owns fields of objects.
const manager = "hanse-testbed"

// Client talks to one API server.
type Client struct {
	server string
	http   *http.Client
}

// Credentials are the PEM texts that a client identifies itself and the server with.
type Credentials struct {
	CA, Cert, Key []byte
}

// New makes a client for a server that has a certificate of the given authority.
func New(server string, credentials Credentials) (*Client, error) {
	certificate, err := tls.X509KeyPair(credentials.Cert, credentials.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate for %s: %w", server, err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(credentials.CA) {
		return nil, fmt.Errorf("authority of %s: no certificate in it", server)
	}
	transport := &http.Transport{
		// No proxy: the server is on this machine.
		TLSClientConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate}, RootCAs: authorities, MinVersion: tls.VersionTLS12,
		},
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   time.Minute,
	}
	return &Client{server: server, http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// StatusError is an answer that is no success.
type StatusError struct {
	Request string
	Code    int
	Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.Request, e.Code, http.StatusText(e.Code), e.Message)
}

// IsNotFound tells whether the server said that the object does not exist.
func IsNotFound(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// Ready tells whether the server says that it is ready.
func (c *Client) Ready(ctx context.Context) error {
	return c.Get(ctx, "/readyz", nil)
}

// Get reads an object, or just whether the answer is a success.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, nil, into)
}

// Delete deletes an object. One that does not exist is deleted already.
func (c *Client) Delete(ctx context.Context, path string) error {
	if err := c.do(ctx, http.MethodDelete, path, nil, nil); !IsNotFound(err) {
		return err
	}
	return nil
}

// Apply puts an object in place, whether or not it exists.
func (c *Client) Apply(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.ApplyText(ctx, path, body)
}

// ApplyText does the same with an object that is written in YAML.
func (c *Client) ApplyText(ctx context.Context, path string, text []byte) error {
	return c.do(ctx, http.MethodPatch, path+"?fieldManager="+manager+"&force=true", text, nil)
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return &StatusError{Request: method + " " + path, Code: response.StatusCode, Message: message(answer)}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: decode answer: %w", method, path, err)
	}
	return nil
}

// message is what a Status object says, or else the text itself.
func message(answer []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &status) == nil && status.Message != "" {
		return status.Message
	}
	return string(bytes.TrimSpace(answer))
}
