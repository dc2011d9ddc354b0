// SPDX-License-Identifier: Apache-2.0

// Package reflection decides what becomes, in the twin namespaces at providers, of the objects that offloaded pods need
// beside themselves: which these are, what their copies look like, and what must be done so that a twin has them. Its
// functions are pure.
package reflection
