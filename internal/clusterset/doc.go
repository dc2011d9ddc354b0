// SPDX-License-Identifier: Apache-2.0

// Package clusterset decides about multi-cluster Services (KEP-1645): what a peer is told of a Service that is exported here, what of
// the Services that peers export is taken, what the ServiceImport is that comes of all exports of a name, where they conflict, and
// what a ServiceExport says of all that. Its functions are pure.
package clusterset
