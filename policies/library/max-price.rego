# Refuses offers that are too expensive: for each resource, the most that one unit of it may cost for an hour.
#
# Edit: the currency and the amounts. A resource that is not named may cost anything; an offer in another currency is
# refused, as its prices do not compare; a free one is always below.
package hanse.incoming

ceiling := {
	"currency": "EUR",
	"perHour": {"cpu": 0.05, "nvidia.com/gpu": 1.5},
}

deny contains sprintf("%s costs %v %s an hour, more than %v", [name, price, ceiling.currency, most]) if {
	input.advertisement.prices.currency == ceiling.currency
	some name, most in ceiling.perHour
	price := input.advertisement.prices.perHour[name]
	price > most
}

deny contains sprintf("prices are in %s, not in %s", [input.advertisement.prices.currency, ceiling.currency]) if {
	input.advertisement.prices.currency != ceiling.currency
}
