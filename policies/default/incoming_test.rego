package hanse.defaults.incoming_test

import data.hanse.defaults.incoming

test_all_is_allowed if incoming.allow with input as {"peer": {"name": "turin"}}
