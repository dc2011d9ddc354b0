// SPDX-License-Identifier: Apache-2.0

// Package measure holds what was measured: samples, and the tables in which they are read beside the bounds of the
// design.
package measure
