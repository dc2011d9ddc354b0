# Offers GPUs to some consumers only.
#
# Edit: the patterns of resources, and the label that a Peer must have to be offered them.
package hanse.outgoing

hidden := ["*/gpu", "gpu.*/*"]

allowed_label := "example.com/gpus"

patch.availability[name] := 0 if {
	not input.peer.labels[allowed_label] == "true"
	some name, _ in input.advertisement.availability
	some pattern in hidden
	glob.match(pattern, null, name)
}
