package kubelet

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// fakeMirror shows the other cluster as it is at each moment.
type fakeMirror struct {
	link      *fakeLink
	example   client.Object
	namespace string
}

func (m *fakeMirror) Get(key types.NamespacedName) (client.Object, bool) {
	if !m.link.synced {
		return nil, false
	}
	object, _ := m.example.DeepCopyObject().(client.Object)
	return object, m.link.remote.Get(context.Background(), key, object) == nil
}

func (m *fakeMirror) List() []client.Object {
	var objects []client.Object
	switch m.example.(type) {
	case *v1alpha1.ShadowPod:
		list := &v1alpha1.ShadowPodList{}
		_ = m.link.remote.List(context.Background(), list, client.InNamespace(m.namespace))
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	return objects
}

func (m *fakeMirror) Err() error { return m.link.err }

// Failed never tells: tests cut sites off themselves.
func (m *fakeMirror) Failed() <-chan struct{} { return nil }

func (m *fakeMirror) HasSynced() bool { return m.link.synced }

// WaitForSync never succeeds: tests call what would be woken.
func (m *fakeMirror) WaitForSync(context.Context) error { return errors.New("not waited for in tests") }
