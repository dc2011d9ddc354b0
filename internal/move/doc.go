// SPDX-License-Identifier: Apache-2.0

// Package move decides how a running pod gets to another node without a gap.
//
// Preflight says what stands against a move, Copy is the pod that takes the place of the original, and Next is the next step,
// by what is observed now. Nothing is remembered: a move goes on from wherever it was left, by whoever looks at it.
//
// DeletionOrder is the order in which a ReplicaSet deletes its pods, on which the move depends.
package move
