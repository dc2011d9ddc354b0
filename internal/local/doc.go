// Package local is how the controllers read and write objects of their own cluster, where a plain client is not enough:
// the part of a status that is one's own, objects as the API server has them now, and the time by its clock.
package local
