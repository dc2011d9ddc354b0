// SPDX-License-Identifier: Apache-2.0

// Package unread spares API servers, and ourselves, answers that nobody reads. An API server answers a write with the whole
// object as it is then.
package unread
