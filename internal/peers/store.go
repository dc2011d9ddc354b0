package peers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A store is the side of a mirror that its reflector writes to: a cache.ReflectorStore. Objects that are not of the
// mirrored namespace, or have no name, are what no API server sends, and are passed over.
type store struct{ mirror *Mirror }

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error {
	key, object, ok := s.accept(obj)
	if !ok {
		return nil
	}
	if s.put(key, object) {
		s.mirror.changed(key)
		return nil
	}
	s.mirror.report("watch", fmt.Errorf("%w: more than %d objects", ErrTooLarge, maxMirrored))
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	key, _, ok := s.accept(obj)
	if !ok {
		return nil
	}
	s.mirror.mu.Lock()
	delete(s.mirror.objects, key)
	s.mirror.mu.Unlock()
	s.mirror.changed(key)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, _ string) error {
	objects := make(map[types.NamespacedName]client.Object, len(list))
	for _, obj := range list {
		if key, object, ok := s.accept(obj); ok {
			objects[key] = object
		}
	}
	s.mirror.mu.Lock()
	old := s.mirror.objects
	s.mirror.objects = objects
	s.mirror.mu.Unlock()
	if !s.mirror.HasSynced() {
		close(s.mirror.synced)
	}
	for _, key := range differing(old, objects) {
		s.mirror.changed(key)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (*store) Resync() error { return nil }

func (s *store) accept(obj any) (types.NamespacedName, client.Object, bool) {
	object, ok := obj.(client.Object)
	if !ok || object.GetNamespace() != s.mirror.namespace || object.GetName() == "" {
		return types.NamespacedName{}, nil, false
	}
	object.SetManagedFields(nil) // nobody reads them, and they are often half of an object
	if s.mirror.trim != nil {
		s.mirror.trim(object)
	}
	return client.ObjectKeyFromObject(object), object, true
}

// put keeps the object unless the mirror is full.
func (s *store) put(key types.NamespacedName, object client.Object) bool {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if _, known := s.mirror.objects[key]; !known && len(s.mirror.objects) >= maxMirrored {
		return false
	}
	s.mirror.objects[key] = object
	return true
}

// differing returns the keys of the objects that are in only one of the maps, or in another version.
func differing(a, b map[types.NamespacedName]client.Object) []types.NamespacedName {
	var keys []types.NamespacedName
	for key := range a {
		if _, kept := b[key]; !kept {
			keys = append(keys, key)
		}
	}
	for key, object := range b {
		before, known := a[key]
		if !known || before.GetResourceVersion() != object.GetResourceVersion() || before.GetUID() != object.GetUID() {
			keys = append(keys, key)
		}
	}
	return keys
}
