# What Hanse answers to `placement` where there is no policy, and the order of clusters where no policy has a rule
# `score`: what the user of the namespace asked for in spec.placement.prefer.
#
#   Price    the cheapest first, for a pod like input.request
#   Latency  the nearest first
#   Spread   no cluster before another
package hanse.defaults.placement

# What has no price is free. What is free comes first.
score[row.peer] := sum([part |
	some name, amount in owed
	part := amount * row.prices.perHour[name]
]) if {
	input.wish.prefer == "Price"
	some row in input.table
	row.prices.currency == currency
}

score[row.peer] := 0 if {
	input.wish.prefer == "Price"
	some row in input.table
	not row.prices
}

score[row.peer] := 0 - row.roundTripSeconds if {
	input.wish.prefer == "Latency"
	some row in input.table
}

# Negative, so that the cheapest has the highest score.
owed := {name: less |
	some name, amount in input.request
	less := 0 - units(name, amount)
}

# Memory and storage are counted in bytes, and have their price by the Gi.
units(name, amount) := amount / 1073741824 if in_bytes(name)

units(name, amount) := amount if not in_bytes(name)

in_bytes(name) if name in {"memory", "ephemeral-storage"}

in_bytes(name) if startswith(name, "hugepages-")

# Amounts in different currencies do not compare. The user says in maxPrice which one counts; otherwise it is the one in
# which all ask.
currency := input.wish.maxPrice.currency if input.wish.maxPrice

currency := asked if {
	not input.wish.maxPrice
	[asked] = [one | some one in {other.prices.currency | some other in input.table}]
}
