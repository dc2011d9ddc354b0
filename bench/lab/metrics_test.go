// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

func TestMetricsAreSummedByNameAndLabels(t *testing.T) {
	m, err := parseMetrics(strings.NewReader(`# HELP workqueue_depth Current depth
# TYPE workqueue_depth gauge
workqueue_depth{controller="pod",name="pod",priority="0"} 3
workqueue_depth{controller="pod",name="pod",priority="-100"} 40
workqueue_depth{controller="virtual-node",name="virtual-node",priority="0"} 1
workqueue_depth_more{controller="pod"} 7
go_goroutines 123
go_gc_heap_live_bytes 1.2345678e+07
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"workqueue_depth", nil, 44},
		{"workqueue_depth", []string{`controller="pod"`}, 43},
		{"workqueue_depth", []string{`controller="pod"`, `priority="0"`}, 3},
		{"go_goroutines", nil, 123},
		{"go_gc_heap_live_bytes", nil, 12345678},
		{"workqueue", nil, 0},
	} {
		if got := m.Sum(tt.name, tt.labels...); got != tt.want {
			t.Errorf("the sum of %s %v is %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
	if _, err := parseMetrics(strings.NewReader("go_goroutines many\n")); err == nil {
		t.Error("a value that is no number is no error")
	}
}
