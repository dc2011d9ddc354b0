// SPDX-License-Identifier: Apache-2.0

// Package reflector takes out to providers what offloaded pods refer to: it keeps copies of ConfigMaps and Secrets in
// the twin namespaces at the peer, exactly as long as a pod on the virtual node of that provider refers to them.
//
// Small controllers share the work. granter lets the manager read these kinds, and make tokens of service accounts, in the
// namespaces that pods leave from, and nowhere else. copier looks at the objects of one kind, in one namespace, for one peer.
// tokens looks at the tokens of one pod. Whoever keeps the Peer makes the links that they use.
//
// Of both sides only metadata is watched: here in namespaces in which pods need something, there in twins that have
// something. So no Secret is read that no pod refers to, and none is kept in memory. There is no watch of a whole cluster
// that could be shared between namespaces, because Hanse may not read Secrets of the whole cluster.
package reflector
