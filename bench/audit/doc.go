// SPDX-License-Identifier: Apache-2.0

// Package audit counts API requests from the audit log of an API server: who wrote what, and how often.
package audit
