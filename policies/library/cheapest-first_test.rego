package hanse.placement_test

import data.hanse.placement

question := {
	"request": {"cpu": 2, "memory": 107374182400},
	"table": [
		{"peer": "dear", "prices": {"currency": "EUR", "perHour": {"cpu": 0.5, "memory": 0.01}}},
		{"peer": "cheap", "prices": {"currency": "EUR", "perHour": {"cpu": 0.25}}},
		{"peer": "free"},
		{"peer": "abroad", "prices": {"currency": "CHF", "perHour": {"cpu": 0.01}}},
	],
}

test_score if placement.score == {"dear": -2, "cheap": -0.5, "free": 0} with input as question

test_exclude if placement.exclude == {"abroad": "its prices are in CHF, not in EUR"} with input as question
