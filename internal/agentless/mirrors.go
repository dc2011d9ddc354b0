package agentless

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// shadows shows the ShadowPods of the pods of one home namespace.
type shadows struct {
	*view
	namespace string
}

// Get implements Mirror.
func (s *shadows) Get(key types.NamespacedName) (client.Object, bool) {
	if key.Namespace != s.namespace {
		return nil, false
	}
	shadow, found := s.shadow(key)
	if !found {
		return nil, false
	}
	return shadow, true
}

// List implements Mirror.
func (s *shadows) List() []client.Object {
	var all []client.Object
	for _, home := range s.homes(s.namespace) {
		if shadow, found := s.shadow(home); found {
			all = append(all, shadow)
		}
	}
	return all
}

// mappings shows a twin for each home namespace that somebody asks for, or of which there are pods at the peer: no
// namespace has to be made there. The twin has the name of the home namespace, so that pods of the same name in two of
// them do not meet; where they really run Link.RemotePod tells.
type mappings struct {
	*view
	tenant string // namespace that the mappings seem to lie in

	mu     sync.Mutex
	known  map[string]bool
	untold []string      // those of them of which nobody has been told yet
	ring   chan struct{} // holds one value while there are some
}

func newMappings(seen *view, tenant string) *mappings {
	return &mappings{view: seen, tenant: tenant, known: map[string]bool{}, ring: make(chan struct{}, 1)}
}

// tell calls changed for each mapping that appears, until ctx ends.
func (m *mappings) tell(ctx context.Context, changed func(types.NamespacedName)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.ring:
		}
		m.mu.Lock()
		untold := m.untold
		m.untold = nil
		m.mu.Unlock()
		for _, namespace := range untold {
			changed(types.NamespacedName{Namespace: m.tenant, Name: namespace})
		}
	}
}

// learn remembers a home namespace.
func (m *mappings) learn(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[namespace] {
		return
	}
	m.known[namespace] = true
	m.untold = append(m.untold, namespace)
	select {
	case m.ring <- struct{}{}:
	default:
	}
}

// Get implements Mirror.
func (m *mappings) Get(key types.NamespacedName) (client.Object, bool) {
	if key.Namespace != m.tenant {
		return nil, false
	}
	m.learn(key.Name)
	return mappingOf(key), true
}

// List implements Mirror.
func (m *mappings) List() []client.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []client.Object
	for namespace := range m.known {
		all = append(all, mappingOf(types.NamespacedName{Namespace: m.tenant, Name: namespace}))
	}
	return all
}

func mappingOf(key types.NamespacedName) *v1alpha1.NamespaceMapping {
	return &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       v1alpha1.NamespaceMappingSpec{HomeNamespace: key.Name},
		Status: v1alpha1.NamespaceMappingStatus{Twin: key.Name, Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAgentless,
			Message: "Pods run in a namespace that the administrator chose",
		}}},
	}
}
