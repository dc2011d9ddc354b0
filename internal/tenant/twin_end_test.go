package tenant

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestRightsInATwinGoLast(t *testing.T) {
	stray := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stray", Namespace: lubeck.name()}}
	for name, c := range map[string]struct {
		ends bool
		left []client.Object
		kept bool
	}{
		"a twin that stays":    {kept: true},
		"an empty one":         {ends: true},
		"one with a ShadowPod": {ends: true, left: []client.Object{shadowPod()}, kept: true},
		"one with a pod":       {ends: true, left: []client.Object{stray}, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			bindings := []*rbacv1.RoleBinding{lubeck.managerBinding(&Config{Namespace: "hanse-system"}), lubeck.peerBinding(v1alpha1.AccessOpen)}
			objects := append(c.left, lubeck.namespace(v1alpha1.PodSecurityBaseline))
			for _, binding := range bindings {
				objects = append(objects, binding)
			}
			s := &stage{world: newWorld(t, objects...), twin: lubeck.name()}
			if c.ends {
				s.namespaceEnds()
			}
			for _, binding := range bindings {
				s.Home.Remove(binding)
			}
			again := s.Reconcile(&endReconciler{client: s.Home.Client, live: s.Home.Server}, "", lubeck.name()).RequeueAfter
			for _, binding := range bindings {
				if got := s.Home.Find(&rbacv1.RoleBinding{}, lubeck.name(), binding.Name); got != c.kept {
					t.Errorf("%s is there: %t, want %t", binding.Name, got, c.kept)
				}
			}
			if (again > 0) != (c.ends && c.kept) {
				t.Errorf("it is looked at again in %s", again)
			}
		})
	}
}
