package hanse.outgoing_test

import data.hanse.outgoing

offer(labels) := {
	"peer": {"name": "turin", "labels": labels},
	"advertisement": {"availability": {"cpu": 8, "nvidia.com/gpu": 2, "gpu.intel.com/i915": 1}},
}

test_hidden if {
	outgoing.patch == {"availability": {"nvidia.com/gpu": 0, "gpu.intel.com/i915": 0}} with input as offer({})
}

test_shown if count(outgoing.patch.availability) == 0 with input as offer({"example.com/gpus": "true"})
