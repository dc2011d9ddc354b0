// Package agentless makes a cluster without Hanse a provider. Of such a peer there is a kubeconfig with rights in some
// namespaces, and nothing else.
//
// Its Offerer makes at home, from what can be read over there, the advertisement that no Hanse there makes. Its Links show
// `hanse kubelet` ShadowPods where there are none: each stands for a ReplicaSet of one replica, or a Job of one pod, which
// the peer's own controllers keep running. Nothing is remembered but what these objects say themselves.
package agentless
