package hanse.placement_test

import data.hanse.placement

question := {"table": [
	{"peer": "near", "roundTripSeconds": 0.01},
	{"peer": "far", "roundTripSeconds": 0.25},
	{"peer": "moon", "roundTripSeconds": 2.6},
	{"peer": "new"},
]}

test_score if placement.score == {"near": -0.01, "far": -0.25, "moon": -2.6} with input as question

test_exclude if placement.exclude == {"moon": "it is further away than 0.25 s"} with input as question
