# Prefers, for all namespaces, the cluster that asks the least for a pod like input.request, whatever their users ask
# for. What is free comes first. To have pods run in the cheapest cluster only, add: strict := true
#
# Edit: the currency. Clusters that ask in another are excluded, as amounts do not compare.
package hanse.placement

import data.hanse.defaults.placement

currency := "EUR"

score[row.peer] := 0 - cost(row) if {
	some row in input.table
	not foreign(row)
}

exclude[row.peer] := sprintf("its prices are in %s, not in %s", [row.prices.currency, currency]) if {
	some row in input.table
	foreign(row)
}

foreign(row) if row.prices.currency != currency

cost(row) := sum([price |
	some name, amount in input.request
	price := placement.units(name, amount) * row.prices.perHour[name]
])
