// SPDX-License-Identifier: Apache-2.0

// Package local is how the controllers read and write objects of their own cluster, where a plain client is not enough:
// the part of a status that is one's own, objects as the API server has them now, those that may not be there, changes that
// come together, and the time by its clock.
package local
