// SPDX-License-Identifier: Apache-2.0

// Package dns01 is for challenges by DNS, which are never made.
package dns01

import (
	"strings"
	"time"
)

type (
	// Options of a client.
	Options struct{ RecursiveNameservers []string }
	// Client asks nobody.
	Client struct{}
	// ChallengeOption changes nothing.
	ChallengeOption struct{}
)

// NewClient returns a client that asks nobody.
func NewClient(*Options) *Client { return nil }

// SetDefaultClient does nothing.
func SetDefaultClient(*Client) {}

// CondOptions changes nothing.
func CondOptions(bool, ...ChallengeOption) ChallengeOption { return ChallengeOption{} }

// DisableAuthoritativeNssPropagationRequirement changes nothing.
func DisableAuthoritativeNssPropagationRequirement() ChallengeOption { return ChallengeOption{} }

// DisableRecursiveNSsPropagationRequirement changes nothing.
func DisableRecursiveNSsPropagationRequirement() ChallengeOption { return ChallengeOption{} }

// PropagationWait changes nothing.
func PropagationWait(time.Duration, bool) ChallengeOption { return ChallengeOption{} }

// UnFqdn returns a name without the dot at its end. Traefik asks this of the names in any certificate.
func UnFqdn(name string) string { return strings.TrimSuffix(name, ".") }
