// Package namespaces asks the peers that a NamespaceOffloading selects for twins of its namespace, takes the request
// back when neither the namespace nor one of its pods needs the twin any more, and tells the user how it stands.
//
// Small controllers share the work, so that an event costs what it changes and not what there is: connector keeps a mirror
// of the NamespaceMappings at each peer, mapper looks at one namespace and one peer, reporter at one NamespaceOffloading,
// homekeeper at one pod that admission kept at home, marker keeps the label hanse.dev/offloads on one namespace, evictor
// moves pods that a change has left behind, and keeper keeps the NamespaceOffloadings that the administrator wants.
package namespaces
