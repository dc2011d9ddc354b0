// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/test/e2e/framework"
	"github.com/hanse-dev/hanse/test/hostile"
)

// offersTwin plays rostock's administrator: it waits for lubeck's mapping of the namespace, and answers it with a twin in
// which lubeck may have records.
func offersTwin(t *testing.T, c *framework.Cluster, home string) (twin string) {
	t.Helper()
	twin = "twin-of-" + home
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: v1alpha1.TenantNamespace("lubeck"), Name: v1alpha1.PeerServiceAccount}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: framework.ObjectMeta(twin)},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: "peer"}, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		},
	} {
		c.MustCreate(t, object)
	}
	t.Cleanup(func() { removeTwin(t, c, home, twin) })
	framework.Eventually(t, "lubeck's mapping of "+home+" is answered", func(ctx context.Context) error {
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
func removeTwin(t *testing.T, c *framework.Cluster, home, twin string) {
	t.Helper()
	framework.EventuallyInCleanup(t, "the pods of "+home+" are deleted", func(ctx context.Context) error { // a thousand may take longer than a request
		return lubeck.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(home), client.GracePeriodSeconds(0))
	})
	namespace := &corev1.Namespace{ObjectMeta: framework.ObjectMeta(twin)}
	framework.EventuallyInCleanup(t, "the twin of "+home+" is gone", func(ctx context.Context) error {
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
	liar            *hostile.Server
	namespace, twin string
}

// consumesFromLiar makes rostock a provider that lies when it is told to, and is honest until then.
func consumesFromLiar(t *testing.T, c *framework.Cluster) liarsPeer {
	t.Helper()
	playPeer(t, rostock)
	liar := liesFor(t, rostock)
	consumeFromRostock(t, c, liar.Address())
	advertise(t, rostock, func(spec map[string]any) { spec["availability"].(map[string]any)["pods"] = "2000" })
	awaitNode(t, c, "rostock", "4")
	ns := c.CreateNamespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: framework.SelectPeer("rostock")}}
	offloading.Namespace, offloading.Name = ns, v1alpha1.NamespaceOffloadingName
	c.MustCreate(t, offloading)
	twin := offersTwin(t, rostock, ns)
	c.AwaitClusterStatus(t, ns, "rostock", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" })
	return liarsPeer{liar, ns, twin}
}

// liesFor starts a server in front of the cluster's API server, where the processes and pods of all clusters reach it.
func liesFor(t *testing.T, c *framework.Cluster) *hostile.Server {
	t.Helper()
	machine, err := c.Machine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	honest, err := hostile.InFrontOf(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	liar, err := hostile.Start(context.WithoutCancel(t.Context()), machine, honest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(liar.Close)
	return liar
}

func boundToRostock(ns, name string) *corev1.Pod {
	pod := framework.NewShellPod(ns, name, framework.RunForever)
	pod.Spec.NodeName = v1alpha1.VirtualNodeName("rostock")
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return pod
}

// scene has a pod of the namespace run there, because records are followed where pods run only, and returns what the provider
// honestly has.
func (p liarsPeer) scene(t *testing.T) hostile.Scene {
	t.Helper()
	lubeck.MustCreate(t, boundToRostock(p.namespace, "bait"))
	records, mapping := &v1alpha1.ShadowPodList{}, &v1alpha1.NamespaceMapping{}
	framework.Eventually(t, "rostock has the record of a pod", func(ctx context.Context) error {
		err := rostock.List(ctx, records, client.InNamespace(p.twin))
		if err == nil && len(records.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: p.namespace}
	if err := rostock.Get(t.Context(), key, mapping); err != nil {
		t.Fatal(err)
	}
	return hostile.Scene{Record: &records.Items[0], Mapping: mapping}
}

// TestSlowPeerHurtsNobody binds a thousand pods to a provider whose watches work and whose writes hang. Pods at another provider start
// meanwhile. How long they take is in the log, and in bench.
func TestSlowPeerHurtsNobody(t *testing.T) {
	ctx := framework.Begin(t)
	slow := consumesFromLiar(t, lubeck)
	healthy := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: framework.SelectPeer("hamburg")})
	before := timesToReady(t, lubeck, healthy, "before", 5)

	slow.liar.Tell(hostile.SlowWrites(10 * time.Second))
	t.Cleanup(func() { slow.liar.End() }) // so that what is deleted at the end goes quickly
	for i := range 1000 {
		lubeck.MustCreate(t, boundToRostock(slow.namespace, fmt.Sprintf("stuck-%d", i)))
	}
	during := timesToReady(t, lubeck, healthy, "during", 5)
	records := &v1alpha1.ShadowPodList{}
	t.Logf("pods to hamburg took %v before, and %v while 1,000 pods waited for rostock", before, during)
	if err := rostock.List(ctx, records, client.InNamespace(slow.twin)); err != nil || len(records.Items) > 500 {
		t.Errorf("rostock has %d records already: its writes do not hang (%v)", len(records.Items), err)
	}
	if node, err := lubeck.VirtualNode(ctx, hamburg); err != nil || !framework.IsNodeReady(node) {
		t.Errorf("hamburg's node is not Ready: %v", err)
	}
}

// A provider shows far more than anybody asked for, and changes its mind all the time: that costs it its link, and costs home
// and its other providers next to nothing.
func TestFloodingPeerHurtsNobody(t *testing.T) {
	ctx := framework.Begin(t)
	flood := consumesFromLiar(t, lubeck)
	scene := flood.scene(t)
	healthy := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, ClusterSelector: framework.SelectPeer("hamburg")})
	before := timesToReady(t, lubeck, healthy, "before", 5)
	quiet := map[string]int{}
	for _, command := range []string{"manager", "kubelet"} {
		quiet[command] = usage(t, lubeck, command).Resident
		forgetPeak(t, lubeck, command)
	}
	log, start := lubeck.AuditOffset(t), time.Now()

	flood.liar.Tell(hostile.ChangesMind(scene, 10*time.Millisecond))
	flood.liar.HangUp()
	turning := timesToReady(t, lubeck, healthy, "turning", 5)
	t.Logf("pods to hamburg took %v before, and %v while a pod and a twin at rostock turned every 10 ms", before, turning)
	framework.Eventually(t, "the virtual node says that rostock changes its mind too often", func(ctx context.Context) error {
		node, err := lubeck.GetNode(ctx, v1alpha1.VirtualNodeName("rostock"))
		if err == nil && !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.NodeFlaps && c.Status == corev1.ConditionTrue
		}) {
			err = fmt.Errorf("conditions: %+v", node.Status.Conditions)
		}
		return err
	})

	flood.liar.Tell(floodsEverything(flood.twin))
	flood.liar.HangUp() // so that what is watched is watched again
	t.Cleanup(func() { flood.liar.End(); flood.liar.HangUp() })
	framework.Eventually(t, "the virtual node says that rostock sends too much", func(ctx context.Context) error {
		node, err := lubeck.GetNode(ctx, v1alpha1.VirtualNodeName("rostock"))
		if err == nil && !strings.Contains(fmt.Sprint(node.Status.Conditions), "sends too much") {
			err = fmt.Errorf("conditions: %+v", node.Status.Conditions)
		}
		return err
	})
	framework.Eventually(t, "the Peer says so too", func(ctx context.Context) error {
		return lubeck.CheckPeerCondition(ctx, "rostock", v1alpha1.ConditionWithinBudget, v1alpha1.ReasonOverBudget)
	})
	during := timesToReady(t, lubeck, healthy, "during", 5)
	t.Logf("pods to hamburg took %v before, and %v while rostock sent all it could", before, during)
	for command, was := range quiet {
		expectMemoryNear(t, lubeck, command, was, 1.3)
	}
	// 20 a second is what the flaps of one peer may cause, besides what fifteen pods need.
	writes, limit := writesOfHanse(t, lubeck, log), 20*time.Since(start).Seconds()+15*10
	t.Logf("Hanse wrote %d times in %s", writes, time.Since(start).Round(time.Second))
	if float64(writes) > limit {
		t.Errorf("Hanse wrote %d times, and %.0f are allowed", writes, limit)
	}
	if node, err := lubeck.VirtualNode(ctx, hamburg); err != nil || !framework.IsNodeReady(node) {
		t.Errorf("hamburg's node is not Ready: %v", err)
	}
}

// floodsEverything shows 50,000 mappings and 100 records of 1.4 MB that nobody asked for, and turns conditions every 10 ms.
func floodsEverything(twin string) hostile.Lie {
	mappings := hostile.Floods("namespacemappings", 50_000, 10*time.Millisecond, func(i, version int) any {
		mapping := &v1alpha1.NamespaceMapping{Spec: v1alpha1.NamespaceMappingSpec{HomeNamespace: fmt.Sprintf("invented-%d", i)}}
		mapping.APIVersion, mapping.Kind = v1alpha1.GroupVersion.String(), "NamespaceMapping"
		mapping.Namespace, mapping.Name = v1alpha1.TenantNamespace("lubeck"), mapping.Spec.HomeNamespace
		mapping.ResourceVersion, mapping.UID = strconv.Itoa(version), types.UID(mapping.Name)
		return mapping
	})
	padding := strings.Repeat("x", 1_400_000)
	records := hostile.Floods("shadowpods", 100, 10*time.Millisecond, func(i, version int) any {
		record := &v1alpha1.ShadowPod{}
		record.APIVersion, record.Kind = v1alpha1.GroupVersion.String(), "ShadowPod"
		record.Namespace, record.Name = twin, fmt.Sprintf("invented-%d", i)
		record.ResourceVersion, record.UID = strconv.Itoa(version), types.UID(record.Name)
		record.Annotations = map[string]string{"padding": padding}
		turned := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}[version%2]
		record.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: turned, Reason: "Turns"}}
		return record
	})
	return hostile.Either(mappings, records)
}

// usage is what the hanse process of that subcommand has taken.
func usage(t *testing.T, c *framework.Cluster, subcommand string) lab.Usage {
	t.Helper()
	usage, err := lab.Process{Name: subcommand, PID: c.HansePID(t, subcommand)}.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return usage
}

// expectMemoryNear checks that the process takes at most so many times what it took before the flood, as soon as what it has
// received and decoded is collected, and that it has never taken more than that besides.
func expectMemoryNear(t *testing.T, c *framework.Cluster, subcommand string, was int, times float64) {
	t.Helper()
	const received = 16 << 20 // what is taken from a peer at a time
	limit := int(float64(was) * times)
	framework.Eventually(t, fmt.Sprintf("hanse %s takes %.1f times of its memory at most", subcommand, times), func(context.Context) error {
		if now := usage(t, c, subcommand).Resident; now > limit {
			return fmt.Errorf("it takes %d MB, and took %d MB before", now>>20, was>>20)
		}
		return nil
	})
	most := usage(t, c, subcommand).Peak
	t.Logf("hanse %s took %d MB before, and %d MB at most during the flood", subcommand, was>>20, most>>20)
	if most > limit+received {
		t.Errorf("that is more than %.1f times and %d MB", times, received>>20)
	}
}

// forgetPeak has the peak of the memory of the process counted from now on.
func forgetPeak(t *testing.T, c *framework.Cluster, subcommand string) {
	t.Helper()
	const peak = "5" // see proc(5)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.HansePID(t, subcommand)), []byte(peak), 0o200); err != nil {
		t.Fatal(err)
	}
}

// timesToReady starts pods one after the other, and returns how long each took from its creation until it was Ready.
func timesToReady(t *testing.T, c *framework.Cluster, ns, prefix string, count int) []time.Duration {
	t.Helper()
	var times []time.Duration
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		start := time.Now()
		c.MustCreate(t, framework.NewShellPod(ns, name, framework.RunForever))
		c.AwaitReadyPods(t, ns, name, 1)
		times = append(times, time.Since(start).Round(time.Millisecond))
	}
	return times
}
