package hanse.quote_test

import data.hanse.quote

prices := {"currency": "EUR", "perHour": {"cpu": 0.01}}

test_it_is_cheaper if {
	quote.prices == {"currency": "EUR", "perHour": {"cpu": 0.008}} with input as {"peer": {"name": "turin"}, "prices": prices}
}

test_a_named_peer_has_interest if quote.interest == 100 with input as {"peer": {"name": "turin"}}

test_others_have_what_is_usual if not quote.interest with input as {"peer": {"name": "bern"}}

test_what_is_free_stays_free if not quote.prices with input as {"peer": {"name": "turin"}}
