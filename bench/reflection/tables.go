// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"time"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/measure"
)

// Bounds of issue 14.
const (
	mostLonger = 1.5 // × the direct client
	soonest    = 100 * time.Millisecond
	mostMemory = 100 // MB for the objects that are held
	megabyte   = 1e6
)

// Tables renders what was measured.
func (r *Result) Tables() []measure.Table {
	if len(r.Kinds) == 0 {
		return nil
	}
	tables := []measure.Table{r.many()}
	if r.Changes > 0 {
		tables = append(tables, r.changes())
	}
	if r.Full.Objects > 0 {
		tables = append(tables, r.memory(), r.watches())
	}
	return tables
}

func (r *Result) many() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("%d objects of a kind at a provider", r.Objects),
		Intro:   fmt.Sprintf("Medians of %d rounds, in each of which both have their turn.", r.Rounds),
		Columns: []string{"kind", "Hanse", "direct client", "compared", "bound", ""},
		Notes: []string{
			fmt.Sprintf("The direct client writes the same copies, %d at a time, into a twin of the same provider, with the rights of the peer and\n"+
				"  through the same guards. From its first write to when the last object is seen there.", atOnce),
			"Hanse: from when the first pod of a namespace that has all objects is bound to a virtual node to when the last one is seen there.",
			"EndpointSlice: each with its Service, so twice as many objects. What is seen is what the provider's manager makes of the messages of both.",
		},
	}
	for _, k := range r.Kinds {
		if len(k.Hanse) == 0 {
			continue
		}
		hanse, floor := k.Hanse.Median().Seconds(), k.Floor.Median().Seconds()
		t.Add(k.Kind, measure.Number(hanse, "s"), measure.Number(floor, "s"), measure.Number(hanse/floor, "×"),
			"≤ "+measure.Number(mostLonger, "×"), measure.Verdict(hanse/floor, mostLonger))
	}
	return t
}

func (r *Result) changes() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("A change of one of %d objects, until it is seen at the provider", r.Objects),
		Columns: measure.DistributionColumns,
		Notes: []string{
			fmt.Sprintf("From just before the write to what a watch at the provider tells. One by one: nothing else happens for %s before each. In a\n"+
				"  row: %d a second, whether those before are seen or not.", pause, perSecond),
			"The direct client writes the copy itself.",
		},
	}
	for _, k := range r.Kinds {
		for _, row := range []struct {
			what  string
			took  measure.Sample
			bound time.Duration
		}{
			{"one by one", k.HanseAlone, soonest},
			{"one by one, direct client", k.FloorAlone, 0},
			{"in a row", k.HanseRow, soonest},
			{"in a row, direct client", k.FloorRow, 0},
		} {
			if len(row.took) > 0 {
				t.Distribution(k.Kind+", "+row.what, row.took, row.bound)
			}
		}
	}
	return t
}

func (r *Result) memory() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("`hanse manager` at home with %d reflected objects", r.Full.Objects),
		Intro:   "What it takes more than before there was any of them.",
		Columns: measure.FigureColumns,
	}
	more := func(full, empty float64) float64 { return (full - empty) / megabyte }
	t.Figure("resident memory", more(float64(r.Full.Usage.Resident), float64(r.Empty.Usage.Resident)), "MB", mostMemory)
	t.Figure("of that without its program", more(float64(r.Full.Usage.Own), float64(r.Empty.Usage.Own)), "MB", 0)
	t.Figure("heap in use", more(r.Full.Heap, r.Empty.Heap), "MB", 0)
	t.Figure("resident memory before", float64(r.Empty.Usage.Resident)/megabyte, "MB", 0)
	t.Figure("processor time since its start", r.Full.Usage.CPU.Seconds(), "s", 0)
	return t
}

func (r *Result) watches() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("Watches of `hanse manager` at home, with %d namespaces that are reflected", r.Namespaces),
		Columns: []string{"kind", "of the whole cluster", "of one namespace", "before there was an object"},
		Notes: []string{
			"From the audit log. Of ConfigMaps and Secrets one for each namespace in which pods need some is wanted: Hanse may read them there alone.",
		},
	}
	for _, k := range kinds {
		of := func(watches map[audit.Kind]int, single bool) (count int) {
			for kind, open := range watches {
				if kind.Resource == k.resource && (kind.Namespace != "") == single {
					count += open
				}
			}
			return count
		}
		t.Add(k.name, fmt.Sprint(of(r.Full.Watches, false)), fmt.Sprint(of(r.Full.Watches, true)),
			fmt.Sprint(of(r.Empty.Watches, false)+of(r.Empty.Watches, true)))
	}
	return t
}
