// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func TestLimitsBoundWhatIsOffered(t *testing.T) {
	s := Snapshot{
		Nodes: []*corev1.Node{node("a"), node("b")},
		Pods: []*corev1.Pod{
			boundPod("own", "a", "lubeck", resources("cpu", "1")),
			boundPod("other", "b", "kiel", resources("cpu", "3")),
		},
	}
	for name, test := range map[string]struct {
		limits, available, largest corev1.ResourceList
	}{
		"none": {
			nil,
			resources("cpu", "5", "memory", "16Gi", "pods", "19", "ephemeral-storage", "200Gi"),
			resources("cpu", "3", "memory", "8Gi", "ephemeral-storage", "100Gi"),
		},
		"more than there is": {
			resources("cpu", "100", "example.com/gpu", "8"),
			resources("cpu", "5", "memory", "16Gi", "pods", "19", "ephemeral-storage", "200Gi"),
			resources("cpu", "3", "memory", "8Gi", "ephemeral-storage", "100Gi"),
		},
		"less than is free: what its own pods hold counts": {
			resources("cpu", "2", "pods", "5"),
			resources("cpu", "2", "memory", "16Gi", "pods", "5", "ephemeral-storage", "200Gi"),
			resources("cpu", "1", "memory", "8Gi", "ephemeral-storage", "100Gi"),
		},
		"less than its pods hold already": {
			resources("cpu", "500m", "memory", "0"),
			resources("cpu", "500m", "memory", "0", "pods", "19", "ephemeral-storage", "200Gi"),
			resources("cpu", "0", "memory", "0", "ephemeral-storage", "100Gi"),
		},
		"absurd ones": {
			resources("cpu", "-1", "memory", "1e30"),
			resources("cpu", "0", "memory", "16Gi", "pods", "19", "ephemeral-storage", "200Gi"),
			resources("cpu", "0", "memory", "8Gi", "ephemeral-storage", "100Gi"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			capacity := ledgerOf(s).Capacity(nil)
			expectEqual(t, test.available, capacity.Availability("lubeck", Claims{Limits: test.limits}))
			expectEqual(t, test.largest, capacity.LargestPod("lubeck", Claims{Limits: test.limits}))
			expectEqual(t, resources("cpu", "7", "memory", "16Gi", "pods", "19", "ephemeral-storage", "200Gi"),
				capacity.Availability("kiel", Claims{}))
		})
	}
}

func TestGuaranteesAreLockedForOthers(t *testing.T) {
	capacity := ledgerOf(Snapshot{
		Nodes: []*corev1.Node{node("a"), node("b")}, // 8 cores, 6 of them free
		Pods:  []*corev1.Pod{boundPod("own", "a", "lubeck", resources("cpu", "1")), boundPod("other", "b", "kiel", resources("cpu", "1"))},
	}).Capacity(nil)
	others := func(pairs ...string) map[string]corev1.ResourceList {
		all := map[string]corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = resources("cpu", pairs[i+1])
		}
		return all
	}
	for name, test := range map[string]struct {
		claims Claims
		want   string // cores for lubeck, the one that it holds included
		pod    string // cores of its largest pod
	}{
		"none":                                 {Claims{}, "7", "3"},
		"what it is guaranteed itself is free": {Claims{Guarantee: resources("cpu", "3")}, "7", "3"},
		"another's is taken off":               {Claims{Others: others("riga", "3500m")}, "3500m", "2500m"},
		"but for what that one holds already":  {Claims{Others: others("kiel", "3")}, "5", "3"},
		"one that holds more than it is guaranteed takes no more": {Claims{Others: others("kiel", "500m")}, "7", "3"},
		"those of several":                     {Claims{Others: others("kiel", "2", "riga", "4")}, "2", "1"},
		"all of it":                            {Claims{Others: others("riga", "100")}, "1", "0"},
		"its own is not another's":             {Claims{Others: others("lubeck", "6")}, "7", "3"},
		"what there is nothing of":             {Claims{Others: map[string]corev1.ResourceList{"riga": resources("a.b/c", "1")}}, "7", "3"},
		"too many for all: each in proportion": {Claims{Guarantee: resources("cpu", "4"), Others: others("riga", "6")}, "3", "2"},
		"too many for all, and its limits":     {Claims{Guarantee: resources("cpu", "4"), Limits: resources("cpu", "2"), Others: others("riga", "6")}, "2", "1"},
		"absurd ones":                          {Claims{Guarantee: resources("cpu", "1e8"), Others: others("riga", "1e8", "kiel", "1e30")}, "2999m", "1999m"},
		"just enough for all":                  {Claims{Guarantee: resources("cpu", "4"), Others: others("riga", "3")}, "4", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			available, pod := capacity.Availability("lubeck", test.claims), capacity.LargestPod("lubeck", test.claims)
			want, wantPod := resource.MustParse(test.want), resource.MustParse(test.pod)
			if got := available["cpu"]; got.Cmp(want) != 0 {
				t.Errorf("%s cores are offered, want %s", got.String(), test.want)
			}
			if got := pod["cpu"]; got.Cmp(wantPod) != 0 {
				t.Errorf("the largest pod has %s cores, want %s", got.String(), test.pod)
			}
			if _, named := available["a.b/c"]; named {
				t.Error("a resource that there is not is offered")
			}
		})
	}
}

// TestGuaranteesTogetherNeverExceedWhatIsThere has every peer take all that it is guaranteed, as far as it was offered.
func TestGuaranteesTogetherNeverExceedWhatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawnSnapshot(t)
		capacity := ledgerOf(s).Capacity(s.Margin)
		guarantees := map[string]corev1.ResourceList{}
		for _, peer := range []string{"lubeck", "kiel", "riga"} {
			if rapid.Bool().Draw(t, "guaranteed") {
				guarantees[peer] = corev1.ResourceList{
					corev1.ResourceCPU:    drawnQuantity(t, "cpu", 0, 12_000),
					corev1.ResourceMemory: *resource.NewQuantity(rapid.Int64Range(0, 1<<35).Draw(t, "memory"), resource.BinarySI),
				}
			}
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			used, there := int64(0), capacity.free[name]
			for _, peer := range []string{"lubeck", "kiel", "riga", "stranger"} {
				offered := amountsOf(capacity.Availability(peer, Claims{Guarantee: guarantees[peer], Others: guarantees}))[name]
				held := capacity.held[peer][name]
				if offered < held || offered > held+capacity.free[name] {
					t.Fatalf("%s is offered %d of %s, holds %d, and %d are free", peer, offered, name, held, capacity.free[name])
				}
				used += min(offered, max(held, amountsOf(guarantees[peer])[name]))
				there += held
			}
			if used > there {
				t.Fatalf("%d of %s are promised and %d are there", used, name, there)
			}
		}
	})
}

// TestOneThatTakesAllLeavesTheGuaranteesOfOthers has one peer take all that it was offered.
func TestOneThatTakesAllLeavesTheGuaranteesOfOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := rapid.Int64Range(0, 1<<62).Draw(t, "free")
		guarantee := rapid.Int64Range(0, 1<<53).Draw(t, "guarantee")
		c := Capacity{free: amounts{"memory": free}, held: map[string]amounts{}}
		list := corev1.ResourceList{"memory": *resource.NewQuantity(guarantee, resource.BinarySI)}
		taken := c.unlocked("greedy", Claims{Others: map[string]corev1.ResourceList{"riga": list}})["memory"]
		if left := free - taken; taken < 0 || left < min(guarantee, free) {
			t.Fatalf("%d of %d are left, and %d are guaranteed", left, free, guarantee)
		}
	})
}
