// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// storyNamed returns a story that needs nothing special, changed by the functions.
func storyNamed(name string, changes ...func(*framework.Needs)) story {
	s := story{name: name, capability: "offloading"}
	for _, change := range changes {
		change(&s.needs)
	}
	return s
}

func alone(n *framework.Needs)     { n.Alone = true }
func last(n *framework.Needs)      { n.Alone, n.Last = true, true }
func core(n *framework.Needs)      { n.Core = true }
func onRequest(n *framework.Needs) { n.OnRequest = true }
func storage(n *framework.Needs)   { n.With = append(n.With, framework.Storage) }

func namesOf(stories []story) (names []string) {
	for _, s := range stories {
		names = append(names, s.name)
	}
	return names
}

func TestSelected(t *testing.T) {
	all := []story{storyNamed("TestB", core), storyNamed("TestA"), storyNamed("TestLong", onRequest)}
	for name, test := range map[string]struct {
		opts options
		want []string
	}{
		"all but those on request, sorted":        {options{}, []string{"TestA", "TestB"}},
		"core stories":                            {options{core: true}, []string{"TestB"}},
		"all but core stories":                    {options{rest: true}, []string{"TestA"}},
		"by an expression, also those on request": {options{run: regexp.MustCompile("^TestL")}, []string{"TestLong"}},
		"by an expression, and core":              {options{run: regexp.MustCompile("^TestA"), core: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, namesOf(selected(slices.Clone(all), test.opts))); diff != "" {
				t.Errorf("stories (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareFindsTestsThatAreMissingInTheTable(t *testing.T) {
	needs := framework.Stories{"TestA": {}, "TestGone": {}}
	err := compare("offloading", []string{"TestA", "TestNew"}, needs)
	want := "test/e2e/offloading/stories_test.go lacks TestNew\ntest/e2e/offloading/stories_test.go has TestGone, which is no test"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	if err := compare("offloading", []string{"TestA", "TestGone"}, needs); err != nil {
		t.Errorf("equal lists: %v", err)
	}
}

// Every test of the packages is in the table of its package, and the other way round. The binaries that say so are not built here, so
// the tables are read as text.
func TestDeclaredFindsStoriesOfEveryCapability(t *testing.T) {
	names, err := declared()
	if err != nil {
		t.Fatal(err)
	}
	for _, capability := range []string{
		"agentless", "broker", "lifecycle", "market", "moving", "network", "offers", "offloading", "peering", "reflection", "security", "volumes",
	} {
		if len(names[capability]) == 0 {
			t.Errorf("no story of %s was found", capability)
		}
	}
}
