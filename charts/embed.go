// SPDX-License-Identifier: Apache-2.0

// Package charts holds the Helm chart, so that the client needs nothing besides itself.
package charts

import "embed"

// Hanse is the folder of the chart.
//
//go:embed all:hanse
var Hanse embed.FS
