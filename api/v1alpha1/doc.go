// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of the API group hanse.dev: what users, administrators and peers write to say what
// they want, and where Hanse says what is.
//
// +kubebuilder:object:generate=true
// +groupName=hanse.dev
package v1alpha1
