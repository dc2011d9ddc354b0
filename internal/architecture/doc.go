// SPDX-License-Identifier: Apache-2.0

// Package architecture holds no code, only the test that imports point down: cmd → edges → I/O → domain → api.
package architecture
