// Package policymaker keeps the policies of an administrator ready to be asked.
//
// A Maker reads the Rego modules of ConfigMaps in Hanse's own namespace that are labelled hanse.dev/policy, compiles them
// when they change, and answers the questions of other packages with those in force, without a lock and without
// compiling. It also answers questions that somebody wants to try, in ConfigMaps labelled hanse.dev/policy-test.
//
// A mistake never takes a rule out of force: of each key of a ConfigMap the last good module stays until there is a
// better one or the key is deleted, and a module that others need stays even then. What is in force is kept in the
// ConfigMap hanse-policy-status, sources included, so that this also holds for a manager that starts while a module is
// broken. Where not all modules compile together, those that are new or changed are taken in as far as they do.
package policymaker
