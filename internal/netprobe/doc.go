// SPDX-License-Identifier: Apache-2.0

// Package netprobe tries out a network between two pods: one serves, and the other asks. `kubectl hanse test network` and
// `bench network` have it run in pods of Hanse's own image, so that no cluster needs another image.
//
// The server answers on one port: over TCP with HTTP, and over UDP. It is small on purpose, since anybody in the network of the
// pod may talk to it: it answers nothing longer than what it was sent, and holds nothing between two requests.
package netprobe
