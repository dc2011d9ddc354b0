// SPDX-License-Identifier: Apache-2.0

// Package kube is the little that the testbed needs of a Kubernetes client: to ask whether things are ready, and to put
// a handful of objects in place.
package kube
