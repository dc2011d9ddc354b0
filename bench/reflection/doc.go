// SPDX-License-Identifier: Apache-2.0

// Package reflection measures how soon objects of a consumer are at a provider: many at once, and one change after the other. Beside
// each figure stands that of a direct client, which writes the same copies with the rights of the peer into a twin.
package reflection
