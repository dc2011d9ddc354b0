package hanse.defaults.outgoing_test

import data.hanse.defaults.outgoing

test_all_is_allowed if outgoing.allow with input as {"peer": {"name": "turin"}}
