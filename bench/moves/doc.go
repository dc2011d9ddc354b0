// SPDX-License-Identifier: Apache-2.0

// Package moves measures what it takes to move the pods of a Deployment from one simulated node to another: how long a move takes beyond
// the start of its copy, what is written for it, and whether pods are missing meanwhile.
package moves
