// SPDX-License-Identifier: Apache-2.0

// Package trace tells an OpenTelemetry collector where the time goes between the binding of a pod to a virtual node and
// its being ready: one trace for each offloaded pod, with the spans of both clusters.
//
// Nothing is kept for it. The id of the trace is the UID of the home pod, whose 128 bits are just as many, and the id of
// the root span follows from it. So every process that has a hand in the pod, and every later life of it, adds to the same
// trace. Spans are made when what they are about is over, and each cluster sends its own to a collector of its own.
package trace
