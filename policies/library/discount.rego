# Offers named peers a lower price.
#
# Edit: the peers, by the names of their Peer objects, and which part of the price each has to pay.
package hanse.outgoing

pays := {
	"turin": 0.8,
	"milan": 0, # nothing
}

patch.prices := object.union(input.advertisement.prices, {
	"perHour": lowered("perHour"),
	"perPlacement": lowered("perPlacement"),
}) if {
	pays[input.peer.name]
}

lowered(field) := {name: price |
	some name, amount in object.get(input.advertisement.prices, field, {})
	price := amount * pays[input.peer.name]
}
