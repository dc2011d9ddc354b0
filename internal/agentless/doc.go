// SPDX-License-Identifier: Apache-2.0

// Package agentless makes a cluster without Hanse a provider. Of such a peer there is a kubeconfig with rights in some
// namespaces, and nothing else.
//
// Offers makes links to such a peer look as if it made an advertisement, from what can be read there, and as if it had twins
// for copies of ConfigMaps and Secrets. Adapt makes links look as if Hanse ran pods there: each ShadowPod stands for a
// ReplicaSet of one replica, or a Job of one pod, which the peer's own controllers keep running. Nothing is remembered but what
// these objects say themselves.
package agentless
