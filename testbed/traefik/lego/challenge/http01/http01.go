// SPDX-License-Identifier: Apache-2.0

// Package http01 is for challenges by HTTP, which are never made.
package http01

import "time"

// PathPrefix is where an authority would ask.
const PathPrefix = "/.well-known/acme-challenge/"

// SetDelay changes nothing.
func SetDelay(time.Duration) any { return nil }
