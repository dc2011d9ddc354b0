# Prefers no cluster to another, for all namespaces, whatever their users ask for: the scheduler spreads pods over all.
#
# Edit: the label of a namespace that is left to what its user asks for.
package hanse.placement

own_choice_label := "example.com/own-placement"

score[row.peer] := 0 if {
	some row in input.table
	not own_choice
}

score[peer] := value if {
	own_choice
	some peer, value in data.hanse.defaults.placement.score
}

own_choice if input.namespace.labels[own_choice_label] == "true"
