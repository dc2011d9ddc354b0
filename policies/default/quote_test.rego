package hanse.defaults.quote_test

import data.hanse.defaults.quote

test_all_is_allowed if quote.allow with input as {"peer": {"name": "turin"}, "request": {"cpu": 4}}
