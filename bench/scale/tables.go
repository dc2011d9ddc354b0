// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/measure"
)

// Bounds of the design.
const (
	maxComeback = time.Second // from the kubelet's restart to a new pod Ready
	maxMemory   = 150         // of the kubelet with many pods, in MB
	maxIdle     = 0.5         // of its processor time then, in percent of a core
	maxLists    = 1           // of each kind and namespace, when it starts
	maxTouches  = 0           // writes at the provider to pods and their records then
	megabyte    = 1e6
	ofACore     = "% of a core"
)

func (c *comeback) table(running int) measure.Table {
	t := measure.Table{
		Title: fmt.Sprintf("A new pod after `hanse kubelet` was killed under %d running ones", running),
		Intro: "It is killed, a pod is created and bound to the virtual node, and it is started again.",
		Notes: []string{
			"The process elects itself leader with the name of the one before, as in a pod that is started again.",
			"The best known system takes 61 s.",
		},
		Columns: measure.DistributionColumns,
	}
	if len(c.ready) > 0 {
		t.Distribution("start → record of the pod at the provider", c.recorded, 0)
		t.Distribution("start → pod Ready at home", c.ready, maxComeback)
	}
	return t
}

func (l *load) table() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("Hanse with %d offloaded pods", l.pods),
		Columns: measure.FigureColumns,
		Notes: []string{
			fmt.Sprintf("Idle is %s in which no pod changes. In use is what a collection of garbage leaves of the heap.", idleFor),
		},
	}
	for n, name := range l.names {
		memory, idle := 0.0, 0.0
		if n == 0 {
			memory, idle = maxMemory, maxIdle
		}
		t.Figure(name+": resident memory", float64(l.usage[name].Resident)/megabyte, "MB", memory)
		t.Figure(name+": resident memory, without its program", float64(l.usage[name].Own)/megabyte, "MB", 0)
		t.Figure(name+": resident memory, at most", float64(l.usage[name].Peak)/megabyte, "MB", 0)
		if heap, known := l.heap[name]; known {
			t.Figure(name+": heap in use", heap/megabyte, "MB", 0)
		}
		t.Figure(name+": idle", l.percent(name), ofACore, idle)
	}
	for _, name := range slices.Sorted(maps.Keys(l.idle)) {
		if !slices.Contains(l.names, name) {
			t.Figure(name+": idle", l.percent(name), ofACore, 0)
		}
	}
	return t
}

func (l *load) percent(process string) float64 {
	return 100 * l.idle[process].Seconds() / idleFor.Seconds()
}

func (r *relisting) tables(consumer, provider string) []measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("Restart of `hanse kubelet` with %d offloaded pods", r.pods),
		Intro:   fmt.Sprintf("It is killed and started again at once, and followed until it has nothing to do, for %s at least.", afterwards),
		Columns: measure.FigureColumns,
		Notes:   []string{"The time until it is idle has some seconds of idleness in it, by which that is known."},
	}
	t.Figure("from its start until it is idle", r.idle.Seconds(), "s", 0)
	t.Figure("its looks at pods", float64(r.looks), "", 0)
	t.Figure("its resident memory", float64(r.usage.Resident)/megabyte, "MB", maxMemory)
	t.Figure("its resident memory, without its program", float64(r.usage.Own)/megabyte, "MB", 0)
	t.Figure("its resident memory, at most", float64(r.usage.Peak)/megabyte, "MB", 0)
	t.Figure("its processor time", r.usage.CPU.Seconds(), "s", 0)
	t.Count("Hanse's writes to pods and their records at the provider", touches(r.requests[provider]), maxTouches)
	t.Figure("Hanse's writes to pods at home", float64(touches(r.requests[consumer])), "", 0)
	return []measure.Table{t, r.lists()}
}

// touches counts writes to pods and ShadowPods.
func touches(requests []audit.Request) int {
	count := 0
	for _, r := range requests {
		kind, _, _ := strings.Cut(r.Resource, "/")
		if r.IsWrite() && (kind == "pods" || kind == "shadowpods") {
			count++
		}
	}
	return count
}

func (r *relisting) lists() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("Lists of `hanse kubelet` after its restart with %d offloaded pods", r.pods),
		Columns: []string{"cluster", "kind", "namespace", "lists", "further pages", "bound", ""},
		Notes: []string{
			"From the audit logs. A watch that first tells what is there counts as a list.",
		},
	}
	for _, cluster := range slices.Sorted(maps.Keys(r.requests)) {
		lists := audit.CountLists(r.requests[cluster], kubelet)
		for _, kind := range slices.SortedFunc(maps.Keys(lists), func(a, b audit.Kind) int {
			return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace))
		}) {
			count := lists[kind]
			t.Add(cluster, kind.Resource, kind.Namespace, fmt.Sprint(count.Lists), fmt.Sprint(count.Pages),
				fmt.Sprint("≤ ", maxLists), measure.Verdict(float64(count.Lists), maxLists))
		}
	}
	return t
}
