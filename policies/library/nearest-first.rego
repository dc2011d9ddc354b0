# Prefers, for all namespaces, the cluster that answers the fastest, whatever their users ask for. To have pods run in
# the nearest cluster only, add: strict := true
#
# Edit: the longest time that a request may take, in seconds. A cluster that is further away is excluded; one that was
# not measured yet is not, and comes last.
package hanse.placement

furthest := 0.25

score[row.peer] := 0 - row.roundTripSeconds if some row in input.table

exclude[row.peer] := sprintf("it is further away than %v s", [furthest]) if {
	some row in input.table
	row.roundTripSeconds > furthest
}
