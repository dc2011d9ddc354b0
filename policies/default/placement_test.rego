package hanse.defaults.placement_test

import data.hanse.defaults.placement

table := [
	{"peer": "free", "roundTripSeconds": 0.3},
	{"peer": "cheap", "roundTripSeconds": 0.2, "prices": {"currency": "EUR", "perHour": {"cpu": 0.01}}},
	{"peer": "dear", "roundTripSeconds": 0.1, "prices": {"currency": "EUR", "perHour": {"cpu": 0.02, "memory": 0.5}}},
]

test_price if {
	placement.score == {"free": 0, "cheap": -0.02, "dear": -1.04} with input as {
		"wish": {"prefer": "Price"},
		"request": {"cpu": 2, "memory": 2147483648},
		"table": table,
	}
}

test_latency if {
	placement.score == {"free": -0.3, "cheap": -0.2, "dear": -0.1} with input as {"wish": {"prefer": "Latency"}, "table": table}
}

test_unknown_latency_has_no_score if {
	placement.score == {} with input as {"wish": {"prefer": "Latency"}, "table": [{"peer": "new"}]}
}

test_other_currency_has_no_score if {
	other := {"peer": "abroad", "prices": {"currency": "CHF", "perHour": {"cpu": 0.001}}}
	mixed := array.concat(table, [other])
	{"free"} == object.keys(placement.score) with input as {
		"wish": {"prefer": "Price"},
		"request": {"cpu": 1},
		"table": mixed,
	}
	{"free", "abroad"} == object.keys(placement.score) with input as {
		"wish": {"prefer": "Price", "maxPrice": {"amount": 1, "currency": "CHF"}},
		"request": {"cpu": 1},
		"table": mixed,
	}
}

test_spread_and_no_wish if {
	placement.score == {} with input as {"wish": {"prefer": "Spread"}, "request": {"cpu": 1}, "table": table}
	placement.score == {} with input as {"request": {"cpu": 1}, "table": table}
}
