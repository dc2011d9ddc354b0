package invitation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestOnlyChangesThatMatterWakeTheControllers(t *testing.T) {
	cases := map[string]struct {
		change           func(*v1alpha1.Peer)
		wakes, ofSchemas bool
	}{
		"the status": {change: func(p *v1alpha1.Peer) { p.Status.Version = "v0.2.0" }},
		"a label":    {change: func(p *v1alpha1.Peer) { p.Labels = map[string]string{"a": "b"} }},
		"the spec":   {change: func(p *v1alpha1.Peer) { p.Generation++ }, wakes: true},
		"the deletion": {
			change: func(p *v1alpha1.Peer) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, wakes: true,
		},
		"the roles": {
			change: func(p *v1alpha1.Peer) { p.Generation, p.Spec.Roles = 2, nil }, wakes: true, ofSchemas: true,
		},
		"another Peer of the name": {change: func(p *v1alpha1.Peer) { p.UID = "other" }, wakes: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := peerOf(v1alpha1.RoleConsumer)
			after := before.DeepCopy()
			tc.change(after)
			e := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
			if got := specChanges.Update(e); got != tc.wakes {
				t.Errorf("wakes the controller of invitations: %t", got)
			}
			if got := consumerChanges.Update(e); got != tc.ofSchemas {
				t.Errorf("wakes that of the FlowSchema: %t", got)
			}
		})
	}
}

func TestNamespacesWakeTheirPeer(t *testing.T) {
	cases := map[string][]reconcile.Request{
		"hanse-peer-hamburg": {{NamespacedName: client.ObjectKey{Name: "hamburg"}}},
		"hanse-peer-":        nil,
		"default":            nil,
	}
	for name, want := range cases {
		if diff := cmp.Diff(want, requestFor(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if tenantNamespaces.Generic(event.GenericEvent{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}) {
		t.Error("any namespace wakes the controller")
	}
}
