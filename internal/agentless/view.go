package agentless

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// A view is what we have at a peer: our ReplicaSets, Jobs and pods in its namespaces, by home pod.
type view struct {
	id         string
	namespaces []string

	mu       sync.Mutex
	mirrors  map[source]Mirror
	keepers  index // ReplicaSets and Jobs
	pods     index
	versions map[types.NamespacedName]uint64 // home pod → the newest version that was shown of it, which never goes back
	heard    map[int]func(home types.NamespacedName)
	next     int // the key of the next one who listens
}

// A source is the objects of one kind in one namespace.
type source struct {
	kind      kind
	namespace string
}

// examples are of the kinds that we watch.
var examples = map[kind]client.Object{
	replicaSets: &appsv1.ReplicaSet{}, jobs: &batchv1.Job{}, pods: &corev1.Pod{},
}

func newView(id string, namespaces []string) *view {
	return &view{
		id: id, namespaces: namespaces, mirrors: map[source]Mirror{}, keepers: newIndex(), pods: newIndex(),
		versions: map[types.NamespacedName]uint64{}, heard: map[int]func(types.NamespacedName){},
	}
}

// watch begins to follow what is at the peer, until ctx ends.
func (v *view) watch(ctx context.Context, api API) error {
	v.mu.Lock() // the first change may come before a mirror is known
	defer v.mu.Unlock()
	for _, namespace := range v.namespaces {
		for of, example := range examples {
			from := source{of, namespace}
			ours := labels.SelectorFromSet(labels.Set{v1alpha1.LabelAgentless: v.id})
			made, err := api.Mirror(ctx, example, peers.Selection{Namespace: namespace, Labels: ours}, func(key types.NamespacedName) {
				v.changed(from, key)
			})
			if err != nil {
				return fmt.Errorf("watch namespace %s: %w", namespace, err)
			}
			v.mirrors[from] = made
		}
	}
	return nil
}

// changed takes in that an object has come, changed or gone, and tells those who listen.
func (v *view) changed(from source, key types.NamespacedName) {
	homes, listeners := v.take(from, key)
	for _, home := range homes {
		for _, tell := range listeners {
			tell(home)
		}
	}
}

// take returns the home pods that the change is about, and who wants to know.
func (v *view) take(from source, key types.NamespacedName) ([]types.NamespacedName, []func(types.NamespacedName)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, entries := place{from.kind, key}, v.keepers
	if from.kind == pods {
		entries = v.pods
	}
	var homes []types.NamespacedName
	object, exists := v.mirrors[from].Get(key)
	home, ours := types.NamespacedName{}, false
	if exists {
		home, ours = v.homeOf(from.kind, object)
	}
	if ours {
		homes = append(homes, home)
		if before, moved := entries.put(at, home); moved {
			homes = append(homes, before)
		}
	} else if before, known := entries.remove(at); known {
		homes = append(homes, before)
	}
	return homes, slices.Collect(maps.Values(v.heard))
}

// homeOf returns the home pod that the object is for. What runs a pod has the name that follows from it: others have made
// whatever has another.
func (v *view) homeOf(of kind, object client.Object) (types.NamespacedName, bool) {
	home, ours := homeOf(v.id, object)
	return home, ours && (of == pods || object.GetName() == remoteName(v.id, home))
}

// listen has tell called with each home pod about which something changes, until stop is called.
func (v *view) listen(tell func(home types.NamespacedName)) (stop func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := v.next
	v.next++
	v.heard[key] = tell
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.heard, key)
	}
}

// look returns what there is for the home pod. Of several ReplicaSets and Jobs it is the oldest: it belongs to an earlier
// pod of the name, and has to go first.
func (v *view) look(home types.NamespacedName) (observed, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lookLocked(home)
}

func (v *view) lookLocked(home types.NamespacedName) (observed, bool) {
	var keeper client.Object
	for at := range v.keepers.of[home] {
		if found, ok := v.get(at); ok && (keeper == nil || older(found, keeper)) {
			keeper = found
		}
	}
	if keeper == nil {
		delete(v.versions, home)
		return observed{}, false
	}
	var found []*corev1.Pod
	for at := range v.pods.of[home] {
		object, _ := v.get(at)
		if pod, isPod := object.(*corev1.Pod); isPod {
			found = append(found, pod)
		}
	}
	return observe(keeper, found), true
}

func (v *view) get(at place) (client.Object, bool) {
	return v.mirrors[source{at.kind, at.Namespace}].Get(at.NamespacedName)
}

func older(a, b client.Object) bool {
	left, right := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !left.Equal(&right) {
		return left.Before(&right)
	}
	return strings.Compare(a.GetNamespace()+string(a.GetUID()), b.GetNamespace()+string(b.GetUID())) < 0
}

// shadow returns the ShadowPod of the home pod, if there is one.
func (v *view) shadow(home types.NamespacedName) (*v1alpha1.ShadowPod, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, found := v.lookLocked(home)
	if !found {
		return nil, false
	}
	shadow := shadowOf(home, seen)
	// A pod that is gone takes its version along, and what is newer must not look older.
	newest := max(v.versions[home], versionOf(shadow.ResourceVersion))
	v.versions[home] = newest
	shadow.ResourceVersion = formatVersion(newest)
	return shadow, true
}

// homes returns the home pods of that namespace, or of all, of which there is something.
func (v *view) homes(namespace string) []types.NamespacedName {
	v.mu.Lock()
	defer v.mu.Unlock()
	var found []types.NamespacedName
	for home := range v.keepers.of {
		if namespace == "" || home.Namespace == namespace {
			found = append(found, home)
		}
	}
	return found
}

func (v *view) all() []Mirror {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Values(v.mirrors))
}

// HasSynced implements Mirror, for all that is mirrored.
func (v *view) HasSynced() bool {
	return !slices.ContainsFunc(v.all(), func(m Mirror) bool { return !m.HasSynced() })
}

// WaitForSync implements Mirror.
func (v *view) WaitForSync(ctx context.Context) error {
	for _, m := range v.all() {
		if err := m.WaitForSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Err implements Mirror.
func (v *view) Err() error {
	for _, m := range v.all() {
		if err := m.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Failed implements Mirror: what all share is one connection, so that they fail together.
func (v *view) Failed() <-chan struct{} {
	all := v.all()
	for _, m := range all {
		if m.Err() != nil {
			return m.Failed()
		}
	}
	return all[0].Failed()
}
