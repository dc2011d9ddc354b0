// SPDX-License-Identifier: Apache-2.0

// Package mover carries out PodMoves: it observes, has package move decide about the next step, takes that, and observes again.
//
// Every step is a write with the UID or the version of what was observed as its precondition, so that it is done once, by
// whoever comes first. Nothing is remembered between two looks, so that a manager that is killed anywhere goes on from there.
package mover
