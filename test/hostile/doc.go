// SPDX-License-Identifier: Apache-2.0

// Package hostile is the API server of a provider that speaks TLS and lies, for tests of what a consumer stands.
//
// A Server has an honest API server behind it: a real one (InFrontOf), or one in memory (Provider). Begin has it attack, and
// End has it be honest again. Attacks is the table of all attacks, which a test in memory (internal/peers) and a story on real
// clusters (test/e2e) go through.
package hostile
