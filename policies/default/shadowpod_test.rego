package hanse.defaults.shadowpod_test

import data.hanse.defaults.shadowpod

test_all_is_allowed if shadowpod.allow with input as {"peer": {"name": "turin"}}
