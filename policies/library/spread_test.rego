package hanse.placement_test

import data.hanse.placement

question(labels) := {
	"namespace": {"name": "shop", "labels": labels},
	"wish": {"prefer": "Latency"},
	"table": [{"peer": "near", "roundTripSeconds": 0.01}, {"peer": "far", "roundTripSeconds": 0.25}],
}

test_all_alike if placement.score == {"near": 0, "far": 0} with input as question({})

test_own_choice if {
	placement.score == {"near": -0.01, "far": -0.25} with input as question({"example.com/own-placement": "true"})
}
