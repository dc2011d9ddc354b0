// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestWhetherAPodMayGoOn(t *testing.T) {
	for name, test := range map[string]struct {
		path []string
		here string
		want []string
	}{
		"from its home":              {nil, "hamburg", []string{"lubeck", "hamburg"}},
		"from another":               {[]string{"visby", "lubeck"}, "hamburg", []string{"visby", "lubeck", "hamburg"}},
		"that left itself out":       {[]string{"visby"}, "hamburg", []string{"visby", "lubeck", "hamburg"}},
		"as far as it may":           {[]string{"a", "b", "lubeck"}, "hamburg", []string{"a", "b", "lubeck", "hamburg"}},
		"further":                    {[]string{"a", "b", "c", "lubeck"}, "hamburg", nil},
		"back to where it was":       {[]string{"hamburg", "lubeck"}, "hamburg", nil},
		"in a cluster without an id": {nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := shadowOf(`{}`)
			shadow.Spec.Path = test.path
			got, may := Onward(shadow, "lubeck", test.here)
			if diff := cmp.Diff(test.want, got); diff != "" || may != (test.want != nil) {
				t.Errorf("may %v (-want +got):\n%s", may, diff)
			}
		})
	}
}

func TestRoute(t *testing.T) {
	const plain = `{"spec":{"containers":[{"name":"c","image":"i"}]}}`
	const readsUID = `{"spec":{"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v","downwardAPI":
		{"items":[{"path":"uid","fieldRef":{"fieldPath":"metadata.labels['hanse.dev/home-uid']"}}]}}]}}`
	path := []string{"lubeck", "hamburg"}
	stays := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{v1alpha1.TypeVirtualNode}}
	for name, test := range map[string]struct {
		raw   string
		rules Rules
		want  corev1.NodeSelectorRequirement
		path  []string
	}{
		"that stays":     {plain, Rules{}, stays, nil},
		"that may go on": {plain, Rules{Path: path}, corev1.NodeSelectorRequirement{Key: v1alpha1.LabelClusterID, Operator: corev1.NodeSelectorOpNotIn, Values: path}, path},
		"that reads what does not travel further": {readsUID, Rules{Path: path}, stays, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Build(shadowOf(test.raw), test.rules)
			if err != nil {
				t.Fatal(err)
			}
			terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			want := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{test.want}}}
			if diff := cmp.Diff(want, terms); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.path, Path(pod)); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
		})
	}
}

// What a provider has built goes through the next one's allow-list, and reads there what it reads at home.
func TestAPodGoesOn(t *testing.T) {
	home := homePod()
	home.Spec.Volumes = nil
	for i := range home.Spec.Containers {
		home.Spec.Containers[i].VolumeMounts = nil
	}
	first := arrivesBy(t, home, []string{"lubeck", "hamburg"})
	first.UID, first.Spec.NodeName = "uid-at-hamburg", "hanse-bremen"
	second := arrivesBy(t, first, []string{"lubeck", "hamburg", "bremen"})
	if diff := cmp.Diff(first.Spec.Containers, second.Spec.Containers); diff != "" {
		t.Errorf("containers at the first and the second (-first +second):\n%s", diff)
	}
	if got := second.Labels[v1alpha1.LabelHomeUID]; got != "uid-at-hamburg" {
		t.Errorf("it is kept for %q", got)
	}
	if diff := cmp.Diff([]string{"lubeck", "hamburg", "bremen"}, Path(second)); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
}

func arrivesBy(t *testing.T, home *corev1.Pod, path []string) *corev1.Pod {
	t.Helper()
	template, err := Outbound(home, "10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	shadow := shadowFrom(t, template)
	shadow.Spec.HomeUID = home.UID
	pod, err := Build(shadow, Rules{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}
