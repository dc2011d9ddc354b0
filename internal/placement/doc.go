// Package placement decides for each offloaded namespace which providers its new pods may run at and which they prefer,
// and keeps that in the status of its NamespaceOffloading, where the admission policy of pods reads it.
//
// One look at everything reads what the providers offer, at most once in an interval however much changes, and asks for
// a look at each namespace. That one asks the policies, about the namespace and about each class of its pods, combines
// their answers with the wishes of the user, and writes only what differs. Pods are never waited for, and never wait:
// without a decision they are placed by the strategy alone.
package placement
