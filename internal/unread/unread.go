// SPDX-License-Identifier: Apache-2.0

package unread

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// accept asks for the metadata alone of what was written. Errors come as they always do.
const accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// success is what the caller's client decodes in the place of the answer.
const success = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`

type key struct{}

// Answer returns a context for writes whose answers nobody reads. What is passed to the client must not be read afterwards: it
// is empty then, or what was stored where the client's transport is not ours.
func Answer(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Transport returns one by which Answer works.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Context().Value(key{}) == nil {
		return t.next.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept", accept)
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp, err
	}
	// To the end, so that the connection can be used again, and to learn of an answer that breaks off.
	_, err = io.Copy(io.Discard, resp.Body)
	if closed := resp.Body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(success)), int64(len(success))
	resp.Header.Set("Content-Type", "application/json")
	resp.Header.Set("Content-Length", strconv.Itoa(len(success)))
	return resp, nil
}

// WrappedTransport lets those see the transport below who ask what kind it is.
func (t *transport) WrappedTransport() http.RoundTripper { return t.next }
