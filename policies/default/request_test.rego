package hanse.defaults.request_test

import data.hanse.defaults.request

test_all_is_allowed if request.allow with input as {"peer": {"name": "turin"}, "request": {"cpu": 4}}
