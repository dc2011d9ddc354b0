// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// watchPatches collects what the patches of our advertisement say, in the order in which they are sent.
func (w *world) watchPatches() *[]map[string]map[string]any {
	patches := &[]map[string]map[string]any{}
	w.publisher.client = patchWatcher{Client: w.publisher.client, see: func(text []byte) {
		patch := map[string]map[string]any{}
		if err := json.Unmarshal(text, &patch); err != nil {
			w.Error(err)
		}
		*patches = append(*patches, patch)
	}}
	return patches
}

func (w *world) expectFields(want []string, fields map[string]any) {
	w.Helper()
	w.expect(want, slices.Sorted(maps.Keys(fields)))
}

func TestPartialMessageChangesNothingElse(t *testing.T) {
	for name, change := range map[string]func(*world){
		"a large change of what is free": func(w *world) { w.pod("local", "", "1") },
		"a renewal after a change that only the largest pod shows": func(w *world) {
			w.node("b", "2")
			w.Clock.Step(2 * time.Second)
			w.reconcile(w.publisher)
			w.publisher.capacity.take(w.node("b", "2"), true)
			w.node("a", "6")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleConsumer)
			w.node("a", "4")
			w.reconcile(w.publisher)
			full := w.ours().Spec.FullSequence
			change(w)
			patches := w.watchPatches()
			w.Clock.Step(10 * time.Minute)
			w.expectWrites(1, w.publisher)

			w.expect(1, len(*patches))
			patch := (*patches)[0]
			w.expect([]string{"metadata", "spec"}, slices.Sorted(maps.Keys(patch)))
			w.expectFields([]string{"resourceVersion"}, patch["metadata"])
			w.expectFields([]string{"availability", "largestPod", "sequence", "timeToLive", "timestamp"}, patch["spec"])
			w.expect(full, w.ours().Spec.FullSequence)
		})
	}
}

// A full message follows when the terms are new, and the partial ones after it tell of it.
func TestFullMessages(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.reconcile(w.publisher)
	expectKind := func(full bool) {
		t.Helper()
		spec := w.ours().Spec
		if got := spec.FullSequence == spec.Sequence; got != full {
			t.Errorf("full: %t, want %t (sequences %d, %d)", got, full, spec.Sequence, spec.FullSequence)
		}
	}
	expectKind(true)

	w.Clock.Step(10 * time.Minute)
	w.expectWrites(1, w.publisher)
	expectKind(false)

	peer.Spec.Guarantee = testkit.Quantities("cpu", "1")
	w.Home.Put(peer)
	w.Clock.Step(10 * time.Second)
	w.expectWrites(1, w.publisher)
	expectKind(true)

	var kinds []bool // full or not, of the renewals that follow
	for range 6 {
		w.Clock.Step(10 * time.Minute)
		w.expectWrites(1, w.publisher)
		spec := w.ours().Spec
		kinds = append(kinds, spec.FullSequence == spec.Sequence)
	}
	w.expect([]bool{false, false, true, false, false, true}, kinds)
}

func TestAFullMessageIsDueWhenNobodyKnowsOfTheLast(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.reconcile(w.publisher)
	ad := w.ours()
	delete(ad.Annotations, v1alpha1.AnnotationFullSent)
	w.Home.Put(ad)
	w.Clock.Step(10 * time.Minute)
	w.reconcile(w.publisher)
	w.expect(w.ours().Spec.Sequence, w.ours().Spec.FullSequence)
}

func TestOtherImagesAreToldWhenTheyHaveSettled(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	node := w.node("a", "4")
	w.reconcile(w.publisher)
	node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{"docker.io/library/nginx:1"}, SizeBytes: 9})
	w.publisher.capacity.take(node, false)
	w.expect(30*time.Second, w.reconcile(w.publisher).RequeueAfter)
	w.Clock.Step(30 * time.Second)
	w.expectWrites(1, w.publisher)
	w.expect(2, len(w.ours().Spec.Images))
}

func TestConsumerIsToldOfThePrivateImagesThatItUses(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	node := w.node("a", "4")
	node.Status.Images = []corev1.ContainerImage{
		{Names: []string{"registry.example/own:1"}, SizeBytes: 3},
		{Names: []string{"registry.example/others:1"}, SizeBytes: 5},
		{Names: []string{"docker.io/library/nginx:1"}, SizeBytes: 7},
	}
	w.publisher.capacity.take(node, false)
	w.podWithImage("own", "hamburg", "registry.example/own:1")
	w.podWithImage("other", "kiel", "registry.example/others:1")
	w.reconcile(w.publisher)
	w.expect([]v1alpha1.Image{
		{Names: []string{"docker.io/library/nginx:1"}, SizeBytes: 7},
		{Names: []string{"registry.example/own:1"}, SizeBytes: 3},
	}, w.ours().Spec.Images)

	w.publisher.capacity.take(w.podWithImage("own", "hamburg", "registry.example/own:1"), true)
	w.Clock.Step(30 * time.Second)
	w.reconcile(w.publisher)
	w.expect(1, len(w.ours().Spec.Images))
}

func (w *world) podWithImage(name, peer, image string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = w.twin(peer), name
	pod.Spec = corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Image: image}}}
	w.publisher.capacity.take(pod, false)
	return pod
}

func TestImagesCountPodsNotContainers(t *testing.T) {
	i := newImages(10)
	take := func(pod *corev1.Pod, peer string, gone bool) func() { return func() { i.takePod(pod, peer, gone) } }
	own := func(namespace, before, peer string) func() { return func() { i.setOwner(namespace, before, peer) } }
	pod := func(name, peer string, images ...string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.Namespace = name, "of-"+peer
		for _, image := range images {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Image: image})
		}
		return p
	}
	used := func(peer string) (names []string) {
		for namespace := range i.twins[peer] {
			for _, named := range i.used[namespace] {
				names = append(names, slices.Collect(maps.Keys(named))...)
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	for _, step := range []struct {
		act        func()
		kiel, bonn []string
	}{
		{take(pod("a", "kiel", "x", "x", "y"), "", false), nil, nil},
		{own("of-kiel", "", "kiel"), []string{"x", "y"}, nil},
		{own("of-bonn", "", "bonn"), []string{"x", "y"}, nil},
		{take(pod("b", "kiel", "x"), "kiel", false), []string{"x", "y"}, nil},
		{take(pod("a", "kiel"), "kiel", true), []string{"x"}, nil},
		{take(pod("b", "kiel", "x"), "kiel", true), nil, nil},
		{take(pod("b", "bonn", "z"), "bonn", false), nil, []string{"z"}},
		{take(pod("c", "", "z"), "", false), nil, []string{"z"}},
		{own("of-bonn", "bonn", ""), nil, nil},
		{take(pod("b", "bonn"), "", false), nil, nil},
		{take(pod("c", ""), "", true), nil, nil},
		{own("of-kiel", "kiel", ""), nil, nil},
	} {
		step.act()
		if diff := cmp.Diff([][]string{step.kiel, step.bonn}, [][]string{used("kiel"), used("bonn")}); diff != "" {
			t.Error(diff)
		}
	}
	if len(i.used)+len(i.twins) != 0 {
		t.Errorf("%v and %v are left", i.used, i.twins)
	}
}

func TestPricesPerPlacement(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.prices(map[string]string{"currency": "EUR", exchange.PriceImagesKey: "nginx:1.27: 0.01\n"})
	w.reconcile(w.publisher)
	w.expect(map[string]resource.Quantity{"nginx:1.27": resource.MustParse("0.01")}, w.ours().Spec.Prices.PerPlacement)
}

// patchWatcher shows patches before they are sent.
type patchWatcher struct {
	client.Client
	see func([]byte)
}

func (p patchWatcher) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	text, err := patch.Data(object)
	if err != nil {
		return err
	}
	p.see(text)
	return p.Client.Patch(ctx, object, patch, options...)
}
