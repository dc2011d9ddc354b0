// SPDX-License-Identifier: Apache-2.0

// Package requests measures what one write costs an API server, by the way that it is made: processor time of the API server
// alone, of many writes at once, so that nothing else that runs is in it.
package requests
