// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListsOfAProgramAreCountedByKindAndNamespace(t *testing.T) {
	got := CountLists([]Request{
		{Agent: "hanse-kubelet", Verb: "list", Resource: "shadowpods", Namespace: "twin"},
		{Agent: "hanse-kubelet", Verb: "list", Resource: "shadowpods", Namespace: "twin", Page: true},
		{Agent: "hanse-kubelet", Verb: "list", Resource: "shadowpods", Namespace: "twin", Page: true},
		{Agent: "hanse-kubelet", Verb: "watch", Resource: "pods", All: true, Begins: true},
		{Agent: "hanse-kubelet", Verb: "watch", Resource: "pods", All: true}, // its end
		{Agent: "hanse-kubelet", Verb: "list", Resource: "pods"},
		{Agent: "hanse-kubelet", Verb: "watch", Resource: "pods", Begins: true},
		{Agent: "hanse-kubelet", Verb: "patch", Resource: "pods/status"},
		{Agent: "hanse-manager", Verb: "list", Resource: "pods"},
	}, "hanse-kubelet")
	want := map[Kind]Lists{
		{Resource: "shadowpods", Namespace: "twin"}: {Lists: 1, Pages: 2},
		{Resource: "pods"}:                          {Lists: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWatchesAreOpenUntilTheyEnd(t *testing.T) {
	watches := Watches{}
	watches.Follow([]Request{
		{ID: "1", Agent: "a", Verb: "watch", Begins: true},
		{ID: "2", Agent: "a", Verb: "watch", Begins: true},
		{ID: "3", Agent: "b", Verb: "watch", Begins: true},
		{ID: "4", Agent: "a", Verb: "list"},
		{ID: "5", Agent: "a", Verb: "watch", Failed: true}, // refused, so it never began
	})
	if got := watches.Of("a"); got != 2 {
		t.Errorf("a has %d watches open, want 2", got)
	}
	watches.Follow([]Request{{ID: "1", Agent: "a", Verb: "watch"}, {ID: "6", Agent: "a", Verb: "watch", Begins: true}})
	if got := watches.Of("a"); got != 2 {
		t.Errorf("after one ended and one began a has %d watches open, want 2", got)
	}
	watches.Follow([]Request{{ID: "2", Agent: "a", Verb: "watch"}, {ID: "6", Agent: "a", Verb: "watch"}})
	if got := [2]int{watches.Of("a"), watches.Of("b")}; got != [2]int{0, 1} {
		t.Errorf("in the end %v watches are open, want [0 1]", got)
	}
}
