package hanse.incoming_test

import data.hanse.incoming

offer(currency) := {"advertisement": {"prices": {"currency": currency, "perHour": {"cpu": 10}}}}

test_accepted_currency if {
	count(incoming.deny) == 0 with input as offer("EUR")
	incoming.patch == {} with input as offer("EUR")
}

test_converted if {
	incoming.patch.prices == {
		"currency": "EUR",
		"perHour": {"cpu": 9},
		"perPlacement": {},
	} with input as offer("USD")
}

test_unknown_currency if {
	incoming.deny == {"prices are in XAU: only EUR and what converts to it is accepted"} with input as offer("XAU")
	incoming.patch == {} with input as offer("XAU")
}

test_free if {
	count(incoming.deny) == 0 with input as {"advertisement": {}}
	incoming.patch == {} with input as {"advertisement": {}}
}
