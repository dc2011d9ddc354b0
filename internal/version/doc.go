// Package version tells which Hanse this is.
package version
