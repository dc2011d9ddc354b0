package hanse.placement_test

import data.hanse.placement

question(labels) := {
	"namespace": {"name": "clinic", "labels": labels},
	"table": [
		{"peer": "turin", "labels": {"topology.kubernetes.io/region": "eu-south"}},
		{"peer": "paris", "labels": {"topology.kubernetes.io/region": "eu-west"}},
		{"peer": "boston", "labels": {"topology.kubernetes.io/region": "us-east"}},
		{"peer": "silent", "labels": {}},
	],
}

test_eu if {
	placement.exclude == {
		"boston": "data of this namespace stays in eu",
		"silent": "data of this namespace stays in eu",
	} with input as question({"example.com/data-residency": "eu"})
}

test_italy if {
	count(placement.exclude) == 3 with input as question({"example.com/data-residency": "italy"})
	not placement.exclude.turin with input as question({"example.com/data-residency": "italy"})
}

test_unknown_value if {
	count(placement.exclude) == 4 with input as question({"example.com/data-residency": "mars"})
}

test_no_label if count(placement.exclude) == 0 with input as question({})
