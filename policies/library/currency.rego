# Uses offers in one currency only. Prices in a known other one are converted; an offer in an unknown one is refused.
#
# Edit: the currency, and what one unit of each other currency is worth in it.
package hanse.incoming

accepted := "EUR"

worth := {
	"USD": 0.9,
	"CHF": 1.05,
}

deny contains sprintf("prices are in %s: only %s and what converts to it is accepted", [asked, accepted]) if {
	asked := input.advertisement.prices.currency
	asked != accepted
	not worth[asked]
}

patch.prices := {
	"currency": accepted,
	"perHour": converted("perHour", rate),
	"perPlacement": converted("perPlacement", rate),
} if {
	asked := input.advertisement.prices.currency
	asked != accepted
	rate := worth[asked]
}

converted(field, rate) := {name: price |
	some name, amount in object.get(input.advertisement.prices, field, {})
	price := amount * rate
}
