// SPDX-License-Identifier: Apache-2.0

// Package wait waits for conditions by looking again and again.
package wait
