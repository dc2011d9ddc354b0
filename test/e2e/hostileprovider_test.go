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
func (c *cluster) offersTwin(t *testing.T, home string) (twin string) {
	t.Helper()
	twin = "twin-of-" + home
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
	t.Cleanup(func() { c.removeTwin(t, home, twin) })
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
	return twin
}

// removeTwin has the pods of the namespace go, and then plays the provider that lets their records go.
func (c *cluster) removeTwin(t *testing.T, home, twin string) {
	t.Helper()
	err := lubeck.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(home), client.GracePeriodSeconds(0))
	if err != nil {
		t.Error(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: named(twin)}
	eventuallyAfter(t, "the twin of "+home+" is gone", func(ctx context.Context) error {
		if err := c.Delete(ctx, namespace.DeepCopy()); err != nil {
			return client.IgnoreNotFound(err)
		}
		records := &v1alpha1.ShadowPodList{}
		if err := c.List(ctx, records, client.InNamespace(twin)); err != nil {
			return err
		}
		for i := range records.Items {
			record := &records.Items[i]
			record.Finalizers = nil
			if err := c.Update(ctx, record); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return fmt.Errorf("it has %d records", len(records.Items))
	})
}

// A liarsPeer is lubeck's peer rostock behind a liar, with a namespace of lubeck whose pods may run there only.
type liarsPeer struct {
	liar            *harness.Liar
	namespace, twin string
}

// consumesFromLiar makes rostock a provider that lies when it is told to, and is honest until then.
func (c *cluster) consumesFromLiar(t *testing.T) liarsPeer {
	t.Helper()
	playPeer(t, rostock)
	liar, err := harness.StartLiar(context.WithoutCancel(t.Context()), rostock.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(liar.Close)
	c.consumeFromRostock(t, liar.Address())
	rostock.advertise(t, func(spec map[string]any) { spec["availability"].(map[string]any)["pods"] = "2000" })
	c.awaitNode(t, "rostock", "4")
	ns := c.namespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: selects("rostock")}}
	offloading.Namespace, offloading.Name = ns, v1alpha1.NamespaceOffloadingName
	c.create(t, offloading)
	twin := rostock.offersTwin(t, ns)
	c.awaitCluster(t, ns, "rostock", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" })
	return liarsPeer{liar, ns, twin}
}

func selects(peer string) *v1alpha1.ClusterSelector {
	return &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: v1alpha1.LabelValue(peer)}}
}

func boundToRostock(ns, name string) *corev1.Pod {
	pod := shellPod(ns, name, forever)
	pod.Spec.NodeName = v1alpha1.VirtualNodeName("rostock")
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return pod
}

// A provider whose watches live, and whose writes hang, has a thousand pods bound to it: pods to another start as before.
func TestSlowPeerHurtsNobody(t *testing.T) {
	ctx := alone(t, "rostock")
	slow := lubeck.consumesFromLiar(t)
	healthy := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: selects("hamburg")})
	before := lubeck.timesToReady(t, healthy, "before", 5)

	slow.liar.Tell(harness.SlowWrites(10 * time.Second))
	t.Cleanup(func() { slow.liar.Tell(nil) }) // so that what is deleted at the end goes quickly
	for i := range 1000 {
		lubeck.create(t, boundToRostock(slow.namespace, fmt.Sprintf("stuck-%d", i)))
	}
	during := lubeck.timesToReady(t, healthy, "during", 5)
	records := &v1alpha1.ShadowPodList{}
	t.Logf("pods to hamburg took %v before, and %v while 1,000 pods waited for rostock", before, during)
	if err := rostock.List(ctx, records, client.InNamespace(slow.twin)); err != nil || len(records.Items) > 500 {
		t.Errorf("rostock has %d records already: its writes do not hang (%v)", len(records.Items), err)
	}
	expectAsBefore(t, before, during)
	if node, err := lubeck.virtual(ctx, hamburg); err != nil || !nodeReady(node) {
		t.Errorf("hamburg's node is not Ready: %v", err)
	}
}

// expectAsBefore allows for what busy processors, and the story itself, cost the API server.
func expectAsBefore(t *testing.T, before, now []time.Duration) {
	t.Helper()
	if limit := 2*slices.Max(before) + 3*time.Second; slices.Max(now) > limit {
		t.Errorf("pods to hamburg took %v, which is more than %v", now, limit)
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
