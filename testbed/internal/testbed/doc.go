// SPDX-License-Identifier: Apache-2.0

// Package testbed keeps the clusters of one folder of state together: which there are, which slot of the machine they
// share, and who is cut off from whom. Two folders of state are two testbeds, and know nothing of each other.
package testbed
