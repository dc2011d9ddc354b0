// Package run runs short commands to their end.
package run
