// SPDX-License-Identifier: Apache-2.0

// Package image makes images of a single layer, with nothing below it, from files of this machine. Equal input makes an
// equal archive, to the byte.
package image
