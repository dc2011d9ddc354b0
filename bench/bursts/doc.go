// SPDX-License-Identifier: Apache-2.0

// Package bursts measures pods that are offloaded against the same pods made in the provider directly, turn by turn in
// one run: many at once, and one alone. They run on simulated nodes of the provider, so what is measured is the way
// there and back and not the start of containers.
package bursts
