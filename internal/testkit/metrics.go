// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Counted returns what the counter has come to, in all tests of the process so far.
func Counted(t testing.TB, counter prometheus.Counter) int {
	t.Helper()
	metric := &dto.Metric{}
	if err := counter.Write(metric); err != nil {
		t.Fatal(err)
	}
	return int(metric.GetCounter().GetValue())
}
