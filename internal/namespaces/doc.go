// SPDX-License-Identifier: Apache-2.0

// Package namespaces does what a NamespaceOffloading asks for: it decides where new pods of the namespace may run, asks the
// selected peers for twins of the namespace, and tells the user how all of that stands.
//
// Five controllers share the work, so that an event costs what it changes and not what there is:
//
//   - offloadings keeps the status of each NamespaceOffloading: how it stands at each peer, and where new pods go;
//   - mappings asks one peer for a twin of one namespace, and takes the request back when nothing needs the twin any more;
//   - spaces keeps the label hanse.dev/offloads on each namespace that pods leave from, and the NamespaceOffloadings that the
//     administrator wants;
//   - waiting releases pods that were made while no cluster had room for them, as soon as one has;
//   - homebound tells the user of a pod that admission kept it in this cluster, and why.
//
// Pods are evicted by `hanse kubelet`: see internal/kubelet.
package namespaces
