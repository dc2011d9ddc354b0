// Package wait waits for conditions by looking again and again.
package wait
