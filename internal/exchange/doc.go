// Package exchange holds what clusters exchange and how it is judged: what a provider has to spare and for whom, what
// an advertisement must look like to be believed, what it costs, and the table of all offers in force.
//
// Everything here is a value or a function of values: no client, no clock, no log.
package exchange
