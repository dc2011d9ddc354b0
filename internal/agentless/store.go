// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/local"
)

// kind is one of those that are followed at a peer.
type kind int

const (
	replicaSets kind = iota
	jobs
	pods
	configMaps
	secrets
)

// podKinds are what there is of a pod.
var podKinds = map[kind]client.Object{
	replicaSets: &appsv1.ReplicaSet{}, jobs: &batchv1.Job{}, pods: &corev1.Pod{},
}

// copyKinds are what there are copies of. Their metadata is enough.
var copyKinds = map[kind]client.Object{
	configMaps: local.Metadata(corev1.SchemeGroupVersion.WithKind("ConfigMap")),
	secrets:    local.Metadata(corev1.SchemeGroupVersion.WithKind("Secret")),
}

// A place is where an object lies at the peer.
type place struct {
	kind kind
	types.NamespacedName
}

// A store holds what there is at a peer for each home pod, or for what home pods refer to.
type store struct {
	homes  map[types.NamespacedName]*holding
	homeOf map[place]types.NamespacedName
}

// A holding is what there is for one home pod.
type holding struct {
	objects map[place]client.Object
	version uint64 // the newest resource version, also of objects that are gone: what is newer must not look older
}

func newStore() store {
	return store{homes: map[types.NamespacedName]*holding{}, homeOf: map[place]types.NamespacedName{}}
}

// in returns the object that lies there, or nil.
func (h *holding) in(at place) client.Object {
	if h == nil {
		return nil
	}
	return h.objects[at]
}

// set enters that the object, which is nil if there is none of ours, lies there for that home pod. It returns the home
// pods that the change is about.
func (s *store) set(at place, home types.NamespacedName, object client.Object) []types.NamespacedName {
	var changed []types.NamespacedName
	if before, known := s.homeOf[at]; known && (object == nil || before != home) {
		delete(s.homeOf, at)
		delete(s.homes[before].objects, at)
		if len(s.homes[before].objects) == 0 {
			delete(s.homes, before)
		}
		changed = append(changed, before)
	}
	if object == nil {
		return changed
	}
	held := s.homes[home]
	if held == nil {
		held = &holding{objects: map[place]client.Object{}}
		s.homes[home] = held
	}
	held.objects[at], s.homeOf[at] = object, home
	held.version = max(held.version, versionOf(object))
	return append(changed, home)
}

// look returns what there is for the home pod. Of several ReplicaSets and Jobs it is the oldest: it belongs to an earlier
// pod of the name, and has to go first.
func (s *store) look(home types.NamespacedName) (observed, bool) {
	held := s.homes[home]
	if held == nil {
		return observed{}, false
	}
	var owner client.Object
	var found []*corev1.Pod
	for _, object := range held.objects {
		if pod, isPod := object.(*corev1.Pod); isPod {
			found = append(found, pod)
		} else if owner == nil || older(object, owner) {
			owner = object
		}
	}
	if owner == nil {
		return observed{}, false
	}
	seen := observe(owner, found)
	seen.version = held.version
	return seen, true
}

// all returns the home pods of which there is something.
func (s *store) all() []types.NamespacedName { return slices.Collect(maps.Keys(s.homes)) }

func older(a, b client.Object) bool {
	left, right := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(
		left.Compare(right.Time),
		cmp.Compare(a.GetNamespace()+string(a.GetUID()), b.GetNamespace()+string(b.GetUID())),
	) < 0
}

func versionOf(object client.Object) uint64 {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}
