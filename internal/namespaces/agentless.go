package namespaces

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// agentless is the Remote of a peer without Hanse. The administrator has named the namespaces there that pods may run in,
// and all our namespaces have the same twin. Two are equal when their links and twins are.
type agentless struct {
	Remote
	twin string
}

// twinThere returns the namespace of the peer that pods of any namespace run in.
func twinThere(peer *v1alpha1.Peer) string {
	if len(peer.Spec.Namespaces) == 0 {
		return ""
	}
	return peer.Spec.Namespaces[0]
}

// Mappings implements Remote. Nothing is asked of the peer.
func (a agentless) Mappings(context.Context, func(types.NamespacedName)) (Mirror, error) {
	return sameTwin(a.twin), nil
}

// sameTwin is a Mirror in which each namespace has the twin of that name.
type sameTwin string

// Get implements Mirror.
func (s sameTwin) Get(key types.NamespacedName) (client.Object, bool) {
	return &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       v1alpha1.NamespaceMappingSpec{HomeNamespace: key.Name},
		Status: v1alpha1.NamespaceMappingStatus{Twin: string(s), Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAgentless,
			Message: "Pods run in a namespace that the administrator chose",
		}}},
	}, true
}

// List implements Mirror: no mapping has to go.
func (sameTwin) List() []client.Object { return nil }

// HasSynced implements Mirror.
func (sameTwin) HasSynced() bool { return true }

// WaitForSync implements Mirror.
func (sameTwin) WaitForSync(context.Context) error { return nil }
