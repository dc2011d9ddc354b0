// Package local is how the controllers read and write objects of their own cluster, where a plain client is not enough:
// the part of a status that is one's own, and objects as the API server has them now.
package local
