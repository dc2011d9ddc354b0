// SPDX-License-Identifier: Apache-2.0

// Package ext takes the place of a module that Traefik has beside its own, and of which there is no copy: what others may add to
// its configuration. Nothing is added.
package ext

// HTTP adds nothing to the configuration of HTTP.
type HTTP struct{}

// Router adds nothing to that of a router.
type Router struct{}
