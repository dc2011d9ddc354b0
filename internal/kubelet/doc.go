// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the inside of `hanse kubelet`: every virtual node of this cluster in one process.
//
// Four parts meet only through API objects and the links of package peers:
//
//   - the node controller makes one Node for each accepted Advertisement, and the lease controller keeps it alive;
//   - the pod controller takes pods that the scheduler bound to a virtual node out to the provider as ShadowPods, and
//     brings their status back;
//   - the evictor has pods go: those of a virtual node when the provider asks for it or when we leave it, and those that
//     run where a changed NamespaceOffloading does not let new ones run;
//   - the API server answers for each virtual node, on a port of its own, what the cluster's API server asks a kubelet:
//     logs, exec, attach and port-forward, and what its pods use.
//
// Nothing is remembered that could not be observed again, so the process may end at any moment.
package kubelet
