# Offers nothing in business hours, when we need all ourselves: pods that run already stay, and none is added. It holds
# from the first message after the hour on, so expect up to 10 minutes.
#
# Edit: the time zone, the days and the hours. To use no offers at these times, rather than to make none, change the
# package to hanse.incoming.
package hanse.outgoing

zone := "Europe/Berlin"

days := {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"}

opens := 8

closes := 18

deny contains sprintf("nothing is offered on weekdays from %d:00 to %d:00 (%s)", [opens, closes, zone]) if {
	local := [time.parse_rfc3339_ns(input.time), zone]
	time.weekday(local) in days
	[hour, _, _] := time.clock(local)
	hour >= opens
	hour < closes
}
