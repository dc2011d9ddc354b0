package hanse.incoming_test

import data.hanse.incoming

first(labels) := {"peer": {"name": "turin", "labels": labels}, "advertisement": {}}

test_first if incoming.pend == {"this is the first offer of peer turin"} with input as first({})

test_trusted if count(incoming.pend) == 0 with input as first({"example.com/trusted": "true"})

test_not_trusted if count(incoming.pend) == 1 with input as first({"example.com/trusted": "false"})

test_later if count(incoming.pend) == 0 with input as object.union(first({}), {"previous": {}})
