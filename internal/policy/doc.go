// SPDX-License-Identifier: Apache-2.0

// Package policy evaluates the policies of an administrator: a question goes in, a decision with a reason comes out.
//
// The table of questions in question.go says for each question what policies are shown, what they may answer and how long
// they may take. A Set holds the compiled modules of one question; it is compiled once and evaluated often. Policies are
// written in Rego and evaluated by OPA in this process. They reach neither the network nor the clock: all that they can
// know is in the Input.
package policy
