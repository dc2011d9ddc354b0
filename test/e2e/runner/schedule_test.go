// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestNextStory(t *testing.T) {
	shared, single, leaving, stored := storyNamed("TestShared"), storyNamed("TestAlone", alone), storyNamed("TestLast", last), storyNamed("TestStored", storage)
	network := storyNamed("TestNetwork", func(n *framework.Needs) { n.Network = true })
	for name, test := range map[string]struct {
		bed     bed
		waiting []story
		second  bool // there are other clusters of this shape
		want    string
	}{
		"stories beside others come first":                     {bed{ready: true}, []story{leaving, single, shared}, false, "TestShared"},
		"a story beside one that runs":                         {bed{ready: true, running: 3}, []story{single, shared}, false, "TestShared"},
		"a story that is alone waits for those that run":       {bed{ready: true, running: 1}, []story{single, leaving}, false, ""},
		"nothing runs beside a story that is alone":            {bed{ready: true, running: 1, alone: true}, []story{shared}, false, ""},
		"a story that is alone":                                {bed{ready: true}, []story{leaving, single}, false, "TestAlone"},
		"the last story":                                       {bed{ready: true}, []story{leaving}, false, "TestLast"},
		"the last story waits for the other clusters to end":   {bed{ready: true}, []story{leaving}, true, ""},
		"clusters that start take none":                        {bed{}, []story{shared}, false, ""},
		"clusters that end take none":                          {bed{ready: true, ending: true}, []story{shared}, false, ""},
		"clusters without storage take no story that needs it": {bed{ready: true}, []story{stored}, false, ""},
		"clusters with storage do":                             {bed{ready: true, extras: []framework.Extra{framework.Storage}}, []story{stored}, false, "TestStored"},
		"clusters of another shape":                            {bed{ready: true}, []story{network}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.bed.shape = framework.Needs{}.Shape()
			got := ""
			if next := nextStory(test.waiting, &test.bed, !test.second); next >= 0 {
				got = test.waiting[next].name
			}
			if got != test.want {
				t.Errorf("next story %q, want %q", got, test.want)
			}
		})
	}
}

func TestClustersStartWithinTheBudget(t *testing.T) {
	market := storyNamed("TestMarket", func(n *framework.Needs) { n.Clusters = 4 })
	pair := storyNamed("TestPair")
	s := newScheduler(options{budget: 5, parallel: 1}, []story{pair, market, market}, nil)
	shapes := s.shapesWithoutBed()
	if len(shapes) != 2 || shapes[0] != market.needs.Shape() {
		t.Fatalf("shapes %v: the one that most stories wait for is not first", shapes)
	}
	s.beds = append(s.beds, newBed("market", shapes[0], s.storiesOf(shapes[0])))
	if got := s.used(); got != 4 {
		t.Errorf("%d clusters run, want 4", got)
	}
	if left := s.shapesWithoutBed(); len(left) != 1 || left[0] != pair.needs.Shape() {
		t.Errorf("shapes without clusters: %v", left)
	}
}

func TestClustersEndWhenNoStoryNeedsThem(t *testing.T) {
	leaving := storyNamed("TestLast", last)
	first, second := &bed{name: "pair", shape: leaving.needs.Shape()}, &bed{name: "pair-2", shape: leaving.needs.Shape()}
	s := newScheduler(options{}, []story{leaving}, nil)
	s.beds = []*bed{first, second}
	if s.isNeeded(second) {
		t.Error("the second clusters are kept for a story that runs on the only ones")
	}
	s.beds = []*bed{first}
	if !s.isNeeded(first) {
		t.Error("the only clusters end although the last story waits for them")
	}
}

func TestNoClustersStartWhileStoriesWaitToRunSideBySide(t *testing.T) {
	shared, market := storyNamed("TestShared"), storyNamed("TestMarket", alone, func(n *framework.Needs) { n.Clusters = 4 })
	s := newScheduler(options{budget: 9}, []story{shared, market}, nil)
	s.beds = []*bed{{name: "pair", shape: shared.needs.Shape(), ready: true}}
	s.startBeds(t.Context())
	if len(s.beds) != 1 {
		t.Errorf("%d sets of clusters, want 1", len(s.beds))
	}
}
