// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

func TestComebackIsHeldAgainstASecond(t *testing.T) {
	c := comeback{recorded: measure.Sample{400 * time.Millisecond}, ready: measure.Sample{800 * time.Millisecond, 1200 * time.Millisecond}}
	table := c.table(300)
	got := strings.Join(table.Rows[len(table.Rows)-1], "|")
	if want := "start → pod Ready at home|2|800 ms|1.20 s|1.20 s|p99 ≤ 1.00 s|OVER"; got != want {
		t.Errorf("the last row is %q, want %q", got, want)
	}
	if none := (&comeback{}).table(300); len(none.Rows) > 0 {
		t.Errorf("there are rows of nothing: %v", none.Rows)
	}
}

func TestKubeletAloneHasABoundOnMemoryAndIdleness(t *testing.T) {
	l := load{
		pods: 10, names: []string{"hanse-kubelet", "hanse-manager"},
		usage: map[string]lab.Usage{"hanse-kubelet": {Resident: 151e6, Own: 90e6, Peak: 200e6}, "hanse-manager": {Resident: 300e6, Peak: 300e6}},
		heap:  map[string]float64{"hanse-kubelet": 50e6},
		idle:  lab.Reading{"hanse-kubelet": 240 * time.Millisecond, "hanse-manager": 6 * time.Second, "apiserver": 12 * time.Second},
	}
	want := [][]string{
		{"hanse-kubelet: resident memory", "151 MB", "≤ 150 MB", "OVER"},
		{"hanse-kubelet: resident memory, without its program", "90.0 MB", "", ""},
		{"hanse-kubelet: resident memory, at most", "200 MB", "", ""},
		{"hanse-kubelet: heap in use", "50.0 MB", "", ""},
		{"hanse-kubelet: idle", "0.40 % of a core", "≤ 0.50 % of a core", "within"},
		{"hanse-manager: resident memory", "300 MB", "", ""},
		{"hanse-manager: resident memory, without its program", "0.00 MB", "", ""},
		{"hanse-manager: resident memory, at most", "300 MB", "", ""},
		{"hanse-manager: idle", "10.0 % of a core", "", ""},
		{"apiserver: idle", "20.0 % of a core", "", ""},
	}
	table := l.table()
	if diff := cmp.Diff(want, table.Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRestartMayListOnceAndTouchNothing(t *testing.T) {
	r := relisting{pods: 10, requests: map[string][]audit.Request{
		"consumer": {
			{Agent: kubelet, Verb: "watch", Resource: "pods", Begins: true, All: true},
			{Agent: kubelet, Verb: "patch", Resource: "pods/status", Namespace: namespace},
			{Agent: kubelet, Verb: "patch", Resource: "nodes/status"},
		},
		"provider": {
			{Agent: kubelet, Verb: "list", Resource: "shadowpods", Namespace: "twin"},
			{Agent: kubelet, Verb: "list", Resource: "shadowpods", Namespace: "twin", Page: true},
			{Agent: kubelet, Verb: "list", Resource: "namespacemappings", Namespace: "tenant"},
			{Agent: kubelet, Verb: "list", Resource: "namespacemappings", Namespace: "tenant"},
			{Agent: manager, Verb: "list", Resource: "pods"},
			{Agent: manager, Verb: "patch", Resource: "shadowpods/status", Namespace: "twin"},
			{Agent: kubelet, Verb: "update", Resource: "shadowpods", Namespace: "twin"},
		},
	}}
	tables := r.tables("consumer", "provider")
	wantTouches := [][]string{
		{"Hanse's writes to pods and their records at the provider", "2", "≤ 0", "OVER"},
		{"Hanse's writes to pods at home", "1.00", "", ""},
	}
	if diff := cmp.Diff(wantTouches, tables[0].Rows[len(tables[0].Rows)-2:]); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	wantLists := [][]string{
		{"consumer", "pods", "", "1", "0", "≤ 1", "within"},
		{"provider", "namespacemappings", "tenant", "2", "0", "≤ 1", "OVER"},
		{"provider", "shadowpods", "twin", "1", "1", "≤ 1", "within"},
	}
	if diff := cmp.Diff(wantLists, tables[1].Rows); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
}

func TestWhatPodsLeaveBehindIsFound(t *testing.T) {
	at := func(heap float64, goroutines, watches int, objects map[string]int) state {
		return state{
			servers: map[string]holding{"k": {heap: heap * megabyte, resident: 80e6, goroutines: goroutines, files: 12}},
			watches: map[string]int{"consumer: k": watches},
			objects: map[string]map[string]int{"consumer": objects},
		}
	}
	r := turnover{
		names: []string{"k"}, counts: []int{200, 500, 500}, took: []time.Duration{2 * time.Second, 10 * time.Second, 5 * time.Second},
		states: []state{
			at(20, 100, 9, map[string]int{"pods": 0, "leases": 4, "secrets": 2}),
			at(30, 103, 9, map[string]int{"pods": 0, "leases": 4, "secrets": 2}),
			at(32.9, 106, 10, map[string]int{"pods": 1, "leases": 4, "secrets": 1, "jobs": 3}),
		},
	}
	want := [][]string{
		{"k: heap in use", "20.0 MB", "30.0 MB", "32.9 MB", "≤ 33.0 MB", "within"},
		{"k: resident memory", "80.0 MB", "80.0 MB", "80.0 MB", "", ""},
		{"k: goroutines", "100", "103", "106", "≤ 105", "OVER"},
		{"k: open files", "12", "12", "12", "≤ 17", "within"},
		{"consumer: k: open watches", "9", "9", "10", "≤ 9", "OVER"},
		{"consumer: objects", "6", "6", "9", "≤ 6", "OVER"},
		{"consumer: jobs", "0", "0", "3", "≤ 0", "OVER"},
		{"consumer: pods", "0", "0", "1", "≤ 0", "OVER"},
		{"consumer: secrets", "2", "2", "1", "≤ 2", "within"},
		{"time for each pod until then", "10.0 ms", "20.0 ms", "10.0 ms", "", ""},
	}
	table := r.table()
	if diff := cmp.Diff(want, table.Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if table.Title != "What 1000 pods leave behind that are created, Ready, and deleted" {
		t.Errorf("the title is %q", table.Title)
	}
}

func TestTurnoverThatBrokeShowsWhatItHas(t *testing.T) {
	r := turnover{names: []string{"k"}, counts: []int{200}, took: []time.Duration{time.Second}, states: []state{
		{servers: map[string]holding{"k": {goroutines: 7}}},
	}}
	table := r.table()
	if got := strings.Join(table.Rows[2], "|"); got != "k: goroutines|7||||" {
		t.Errorf("the third row is %q", got)
	}
	if table := (&turnover{}).table(); len(table.Rows) > 0 {
		t.Errorf("there are rows of nothing: %v", table.Rows)
	}
}
