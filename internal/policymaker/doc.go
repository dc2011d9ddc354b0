// SPDX-License-Identifier: Apache-2.0

// Package policymaker keeps the policies of an administrator compiled, and evaluates them for other packages.
//
// A Maker reads the Rego modules of ConfigMaps in Hanse's own namespace that are labelled hanse.dev/policy, and compiles
// them when they change. Other packages then get decisions without a lock and without compiling. A Maker also answers
// trials: questions of somebody who wants to know the answer, without consequences.
//
// A mistake never puts a rule out of force. Of each key of a ConfigMap the last good module stays until there is a better
// one or the key is deleted; a module that others need stays even then. The ConfigMap hanse-policy-status holds the sources
// of the modules in force, so this is also true for a manager that starts while a module is broken. Where not all modules
// compile together, the Maker takes as many of the new and changed ones as do.
package policymaker
