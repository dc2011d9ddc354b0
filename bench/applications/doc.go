// SPDX-License-Identifier: Apache-2.0

// Package applications measures how soon room is reserved at a provider: from the creation of a Request until its answer is seen, and from
// the creation of an Application at home until it is placed.
package applications
