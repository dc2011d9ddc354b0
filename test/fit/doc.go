// SPDX-License-Identifier: Apache-2.0

// Package fit holds what we offer against what the real scheduler would place: its own code says what fits. It is a module
// of its own, since that code is part of Kubernetes and not of a library.
package fit
