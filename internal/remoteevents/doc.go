// SPDX-License-Identifier: Apache-2.0

// Package remoteevents writes what peers tell of events of remote objects, in the status of messages such as ShadowPods, as events of
// the objects at home. What it is given has been checked by package offload.
package remoteevents
