// Package policy asks the policies of an administrator a question and gets a decision with a reason.
//
// A Set holds the compiled modules of one question. It is made once and asked often. Policies are written in Rego and
// evaluated by OPA in this process; they reach neither the network nor the clock: all that they may know is in the Input.
package policy
