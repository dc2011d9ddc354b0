# Offers applications for less than what is advertised, and named peers with more interest.
#
# Edit: which part of the advertised price is asked for, and the peers, by the names of their Peer objects, with the interest from 1
# to 100.
package hanse.quote

part := 0.8

interest := {"turin": 100, "milan": 10}[input.peer.name]

prices := object.union(input.prices, {"perHour": lowered})

lowered := {name: price |
	some name, amount in input.prices.perHour
	price := amount * part
}
