// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestPodsOfATwinThatGoesDoNotStayForYears(t *testing.T) {
	pod := func(name string, grace, going *int64) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: lubeck.name(), UID: types.UID(name), Finalizers: []string{kubeletHolds}},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: grace},
		}
		if going != nil {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: testkit.Noon}, going
		}
		return p
	}
	for name, c := range map[string]struct {
		change func(*world)
		run    func(*world)
		want   []int64
	}{
		"when we leave the peer": {
			func(w *world) {
				w.Home.Remove(peer())
			},
			func(w *world) { w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop") },
			[]int64{30, 30, 30},
		},
		"when peering takes the mapping away": {
			func(w *world) {
				w.change(func(spec *v1alpha1.PeerSpec) { spec.Roles = nil })
				w.Home.Remove(mappingIn(w, "shop"))
			},
			func(w *world) { w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop") },
			[]int64{30, 30, 30},
		},
		"when the consumer takes the mapping away": {
			func(w *world) {
				w.Home.Remove(mappingIn(w, "shop"))
			},
			func(w *world) { w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop") },
			[]int64{3600, 3600},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"),
				pod("short", ptr.To[int64](5), nil), pod("usual", nil, nil), pod("long", ptr.To[int64](600), nil),
				pod("years", ptr.To[int64](math.MaxInt64), nil), pod("going-for-years", nil, ptr.To[int64](math.MaxInt64)))
			w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
			c.change(w)
			c.run(w)
			var got []int64
			for _, grace := range w.grace {
				got = append(got, *grace)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if w.Home.Find(&corev1.Namespace{}, "", lubeck.name()) {
				t.Error("the namespace stays")
			}
		})
	}
}
