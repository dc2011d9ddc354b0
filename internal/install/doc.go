// SPDX-License-Identifier: Apache-2.0

// Package install renders the chart and puts it into a cluster, or takes it out again so that nothing is left.
package install
