// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestWhichPodsAreMetered(t *testing.T) {
	application := func(name string, since time.Duration) *v1alpha1.Application {
		return &v1alpha1.Application{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-x", CreationTimestamp: metav1.NewTime(testkit.Noon.Add(since))},
			Spec: v1alpha1.ApplicationSpec{Components: []v1alpha1.ApplicationComponent{{
				Name: "web", PodLabels: map[string]v1alpha1.LabelValue{"app": "web"}, Replicas: 1,
			}}},
		}
	}
	pod := func(namespace, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
		made := testkit.Pod(namespace, "web", node)
		made.Labels, made.Status.StartTime = map[string]string{"app": "web"}, &metav1.Time{Time: testkit.Noon}
		for _, change := range changes {
			change(made)
		}
		return made
	}
	remote := func(p *corev1.Pod) {
		p.OwnerReferences, p.Labels[v1alpha1.LabelRequest] = testkit.OwnedByShadowPod("web", "u"), "app-1"
	}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	hamburg := v1alpha1.VirtualNodeName("hamburg")
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		app  *v1alpha1.Application
		want map[string][]string // direction and peer → the Request
	}{
		"one of ours on a real node": {pod("shop", "worker"), nil, nil},
		"one of ours at a peer":      {pod("shop", hamburg), nil, map[string][]string{"borrowed hamburg": {""}}},
		"a component":                {pod("shop", hamburg), application("shop", -time.Hour), map[string][]string{"borrowed hamburg": {"app-uid-of-x"}}},
		"one that was there before the application": {
			pod("shop", hamburg), application("shop", time.Minute), map[string][]string{"borrowed hamburg": {""}},
		},
		"one of a peer":                {pod(twin, "worker", remote), nil, map[string][]string{"lent lubeck": {"app-1"}}},
		"one that is sent on":          {pod(twin, hamburg, remote), nil, map[string][]string{"lent lubeck": {"app-1"}, "borrowed hamburg": {""}}},
		"one that says it is a peer's": {pod("shop", "worker", remote), nil, nil},
		"one of ours in a twin":        {pod(twin, "worker"), nil, nil},
		"one that is on no node":       {pod("shop", ""), nil, nil},
		"one that has not begun":       {pod("shop", hamburg, func(p *corev1.Pod) { p.Status.StartTime = nil }), nil, nil},
		"one that has ended":           {pod("shop", hamburg, ended), nil, nil},
		"one whose node is ahead": {
			pod("shop", hamburg, func(p *corev1.Pod) { p.Status.StartTime.Time = testkit.Noon.Add(time.Hour) }), nil, map[string][]string{"borrowed hamburg": {""}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := testkit.NewWorld(t, testkit.TwinNamespace(twin, "lubeck"))
			if test.app != nil {
				w.Home.Put(test.app)
			}
			a := newAccountant(Config{Client: w.Home.Client, Clock: w.Clock, Events: w.Events, Period: DefaultPeriod})
			a.podChanged(t.Context(), test.pod, noQueue{})
			if diff := cmp.Diff(test.want, metered(a)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if test.want == nil {
				return
			}
			ended(test.pod)
			a.podChanged(t.Context(), test.pod, noQueue{})
			for direction, meter := range a.meters {
				for _, peer := range []string{"lubeck", "hamburg"} {
					meter.Commit(peer, testkit.Noon.Add(time.Second))
					if meter.Counts(peer) {
						t.Errorf("it still counts, %s %s", direction, peer)
					}
				}
			}
		})
	}
}

// A pod that has ended while the manager did not run is counted until its end, once.
func TestWhatEndedMeanwhileIsCounted(t *testing.T) {
	w := testkit.NewWorld(t, testkit.Peer("hamburg", v1alpha1.RoleProvider))
	w.Clock.Step(time.Hour)
	a := newAccountant(Config{Client: w.Home.Client, Clock: w.Clock, Events: w.Events, Period: DefaultPeriod})
	pod := testkit.Pod("shop", "web", v1alpha1.VirtualNodeName("hamburg"))
	pod.Status.Phase, pod.Status.StartTime = corev1.PodSucceeded, &metav1.Time{Time: testkit.Noon}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(testkit.Noon.Add(30 * time.Minute))},
	}}}
	to := feed{a, a.podChanged, a.podGone}
	to.Create(t.Context(), event.CreateEvent{Object: pod, IsInInitialList: true}, noQueue{})
	to.Update(t.Context(), event.UpdateEvent{ObjectNew: pod}, noQueue{})
	count := &v1alpha1.AccountCount{}
	for _, tally := range a.meters[v1alpha1.AccountBorrowed].Tally("hamburg", w.Clock.Now(), nil) {
		if err := tally.AddTo(count); err != nil {
			t.Fatal(err)
		}
	}
	if len(count.Entries) != 1 || count.Entries[0].Used[corev1.ResourcePods] != "0.5" {
		t.Errorf("counted %+v", count.Entries)
	}
}

// metered says of whom something is metered.
func metered(a *accountant) map[string][]string {
	found := map[string][]string{}
	for direction, meter := range a.meters {
		for _, peer := range []string{"lubeck", "hamburg"} {
			if names := slices.Sorted(slices.Values(meter.Requests(peer))); len(names) > 0 {
				found[string(direction)+" "+peer] = names
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}
