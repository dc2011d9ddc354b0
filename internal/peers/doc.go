// Package peers keeps the links of this cluster: authenticated connections to the API servers of its peers, each limited
// to what lies in that peer's tenant and twin namespaces. A link is made from the kubeconfig in the Secret hanse-link of
// the peer's tenant namespace, and made anew when that Secret changes, unless nothing but the token does. A guest is the
// narrower connection of a cluster that was invited and has no link yet.
//
// Everything that comes over a link is a stranger's word: kubeconfigs may name neither programs nor files, answers are
// bounded in size and time, redirects and waiting times that the other side asks for are ignored, and a peer that
// misbehaves harms only its own link and its own mirrors.
package peers
