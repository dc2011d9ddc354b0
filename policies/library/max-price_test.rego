package hanse.incoming_test

import data.hanse.incoming

offer(currency, prices) := {"advertisement": {"prices": {"currency": currency, "perHour": prices}}}

test_at_the_ceiling if count(incoming.deny) == 0 with input as offer("EUR", {"cpu": 0.05, "memory": 7})

test_above_the_ceiling if {
	incoming.deny == {"cpu costs 0.06 EUR an hour, more than 0.05"} with input as offer("EUR", {"cpu": 0.06})
}

test_other_currency if incoming.deny == {"prices are in CHF, not in EUR"} with input as offer("CHF", {"cpu": 0.01})

test_free if count(incoming.deny) == 0 with input as {"advertisement": {}}
