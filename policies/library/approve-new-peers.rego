# Holds the first offer of each peer until an administrator says a word: kubectl hanse accept, or refuse. Later offers of
# a peer that was accepted once pass.
#
# Edit: the label of a Peer that makes its offers pass at once.
package hanse.incoming

trusted_label := "example.com/trusted"

pend contains sprintf("this is the first offer of peer %s", [input.peer.name]) if {
	not input.previous
	not input.peer.labels[trusted_label] == "true"
}
