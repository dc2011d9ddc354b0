# Keeps pods of namespaces with a label in clusters of some regions: a namespace with example.com/data-residency=eu runs
# in no cluster whose region is not one of the EU. A cluster that does not say its region is excluded, and so are all
# clusters if the label has a value that is not listed here. Namespaces without the label run anywhere.
#
# Edit: the label, and the regions for each of its values. Peers tell their regions themselves: use trusted-labels to
# say whom you believe.
package hanse.placement

residency_label := "example.com/data-residency"

region_label := "topology.kubernetes.io/region"

regions := {
	"eu": {"eu-central", "eu-south", "eu-west"},
	"italy": {"eu-south"},
}

exclude[row.peer] := sprintf("data of this namespace stays in %s", [residency]) if {
	residency := input.namespace.labels[residency_label]
	some row in input.table
	not inside(row, residency)
}

inside(row, residency) if row.labels[region_label] in regions[residency]
