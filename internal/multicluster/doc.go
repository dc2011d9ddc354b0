// SPDX-License-Identifier: Apache-2.0

// Package multicluster keeps multi-cluster Services (KEP-1645) and ClusterProfiles, where their definitions are installed.
//
// Three controllers share the work. exporter tells one peer of the Services that are exported here, by ExportedServices, and has our
// gateway let pass what they need. importer keeps, for one name, the ServiceImport with its Service and EndpointSlices from the exports
// of all clusters, says on the ServiceExport how it stands, and answers peers. profiles keeps a ClusterProfile for each Peer. What
// exists decides, and nothing is remembered.
package multicluster
