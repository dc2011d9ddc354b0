package hanse.outgoing_test

import data.hanse.outgoing

offer(peer) := {
	"peer": {"name": peer},
	"advertisement": {"prices": {"currency": "EUR", "perHour": {"cpu": 0.5}, "perPlacement": {"nginx": 10}}},
}

test_discount if {
	outgoing.patch.prices == {
		"currency": "EUR",
		"perHour": {"cpu": 0.4},
		"perPlacement": {"nginx": 8},
	} with input as offer("turin")
}

test_nothing_to_pay if outgoing.patch.prices.perHour.cpu == 0 with input as offer("milan")

test_others_pay_all if outgoing.patch == {} with input as offer("lyon")

test_free_stays_free if outgoing.patch == {} with input as {"peer": {"name": "turin"}, "advertisement": {}}
