package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// offersTwin plays rostock's administrator: it waits for lubeck's mapping of the namespace, and answers it with a twin in
// which lubeck may have records.
func (c *cluster) offersTwin(t *testing.T, home string) {
	t.Helper()
	twin := "twin-of-" + home
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: v1alpha1.TenantNamespace("lubeck"), Name: v1alpha1.PeerServiceAccount}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: named(twin)},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: "peer"}, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		},
	} {
		c.create(t, object)
	}
	t.Cleanup(func() { c.deleteAndWait(t, &corev1.Namespace{ObjectMeta: named(twin)}) })
	eventually(t, "lubeck's mapping of "+home+" is answered", func(ctx context.Context) error {
		mapping := &v1alpha1.NamespaceMapping{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: account.Namespace, Name: home}, mapping); err != nil {
			return err
		}
		mapping.Status.Twin = twin
		meta.SetStatusCondition(&mapping.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: mapping.Generation,
		})
		return c.Status().Update(ctx, mapping)
	})
}

// A provider whose watches live, and whose writes hang, has a thousand pods bound to it: pods to another start as before.
func TestSlowPeerHurtsNobody(t *testing.T) {
	ctx := alone(t, "rostock")
	playPeer(t, rostock)
	slow, err := harness.StartLiar(context.WithoutCancel(ctx), rostock.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slow.Close)
	lubeck.consumeFromRostock(t, slow.Address())
	rostock.advertise(t, func(spec map[string]any) { spec["availability"].(map[string]any)["pods"] = "2000" })
	lubeck.awaitNode(t, "rostock", "4")
	only := &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "rostock"}}
	stuck := lubeck.namespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: only}}
	offloading.Namespace, offloading.Name = stuck, v1alpha1.NamespaceOffloadingName
	lubeck.create(t, offloading)
	rostock.offersTwin(t, stuck)
	lubeck.awaitCluster(t, stuck, "rostock", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" })

	healthy := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy:        v1alpha1.StrategyRemote,
		ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "hamburg"}},
	})
	before := lubeck.timesToReady(t, healthy, "before", 5)

	slow.Tell(harness.SlowWrites(10 * time.Second))
	t.Cleanup(func() { slow.Tell(nil) }) // so that what is deleted at the end goes quickly
	for i := range 1000 {
		pod := shellPod(stuck, fmt.Sprintf("stuck-%d", i), forever)
		pod.Spec.NodeName = v1alpha1.VirtualNodeName("rostock")
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		lubeck.create(t, pod)
	}
	during := lubeck.timesToReady(t, healthy, "during", 5)
	t.Logf("pods to hamburg took %v before, and %v while 1,000 pods waited for rostock", before, during)
	// As before, but for what the creation of the thousand itself costs the API server.
	if limit := 2*slices.Max(before) + 3*time.Second; slices.Max(during) > limit {
		t.Errorf("pods to hamburg took %v, which is more than %v", during, limit)
	}
	if node, err := lubeck.virtual(ctx, hamburg); err != nil || !nodeReady(node) {
		t.Errorf("hamburg's node is not Ready: %v", err)
	}
}

// timesToReady starts pods one after the other, and returns how long each took from its creation until it was Ready.
func (c *cluster) timesToReady(t *testing.T, ns, prefix string, count int) []time.Duration {
	t.Helper()
	var times []time.Duration
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		start := time.Now()
		c.create(t, shellPod(ns, name, forever))
		c.awaitReadyPods(t, ns, name, 1)
		times = append(times, time.Since(start).Round(time.Millisecond))
	}
	return times
}
