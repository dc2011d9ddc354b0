// SPDX-License-Identifier: Apache-2.0

// Package auth takes the place of a library for passwords, of which Traefik has a fork that cannot be had. Traefik can be built
// with it, and refuses whoever must give a password.
package auth

import "net/http"

// CheckSecret finds every password wrong.
func CheckSecret(string, string) bool { return false }

// BasicAuth lets nobody in.
type BasicAuth struct {
	Realm   string
	Secrets func(user, realm string) string
}

// RequireAuth refuses a request.
func (*BasicAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) { refuse(w) }

// DigestAuth lets nobody in.
type DigestAuth struct{}

// NewDigestAuthenticator makes one.
func NewDigestAuthenticator(string, func(user, realm string) string) *DigestAuth { return nil }

// DigestAuthParams reads nothing.
func DigestAuthParams(string) map[string]string { return nil }

// CheckAuth finds no user.
func (*DigestAuth) CheckAuth(*http.Request) (string, *string) { return "", nil }

// RequireAuth refuses a request.
func (*DigestAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) { refuse(w) }

// RequireAuthStale refuses a request.
func (*DigestAuth) RequireAuthStale(w http.ResponseWriter, _ *http.Request) { refuse(w) }

func refuse(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
