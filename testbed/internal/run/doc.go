// SPDX-License-Identifier: Apache-2.0

// Package run runs short commands to their end.
package run
