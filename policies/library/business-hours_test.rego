package hanse.outgoing_test

import data.hanse.outgoing

denied(instant) if count(outgoing.deny) == 1 with input as {"time": instant}

# Berlin is an hour ahead of UTC in winter, and two in summer.
test_business_hours if {
	denied("2026-11-20T07:00:00Z")
	denied("2026-11-20T16:59:59Z")
	denied("2026-07-20T06:00:00Z")
}

test_evening_and_night if {
	not denied("2026-11-20T06:59:59Z")
	not denied("2026-11-20T17:00:00Z")
	not denied("2026-07-20T16:00:00Z")
}

test_weekend if not denied("2026-11-21T12:00:00Z")
