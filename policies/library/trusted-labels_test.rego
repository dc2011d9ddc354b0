package hanse.incoming_test

import data.hanse.incoming

offer(labels) := {"advertisement": {"labels": labels}}

test_trusted_stay if {
	count(incoming.patch.labels) == 0 with input as offer({"topology.kubernetes.io/region": "eu-south", "kubernetes.io/arch": "arm64"})
}

test_others_go if {
	incoming.patch.labels == {"example.com/certified": "", "kubernetes.io/arch": ""} with input as offer({
		"example.com/certified": "yes",
		"kubernetes.io/arch": "quantum",
		"topology.kubernetes.io/region": "eu-south",
	})
}

test_no_labels if count(incoming.patch.labels) == 0 with input as offer({})
