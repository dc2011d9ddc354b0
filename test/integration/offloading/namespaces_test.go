// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestTwinNameIsChosen: a user chooses the name of the remote namespace, if the provider's administrator allows that name.
func TestTwinNameIsChosen(t *testing.T) {
	ctx := t.Context()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, Twin: &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName},
	})
	awaitCluster(t, lubeck, ns, "hamburg", func(c v1alpha1.ClusterOffloading) bool {
		return c.State != "Ready" && strings.Contains(c.Message, ns)
	})
	changePeer(t, hamburg, "lubeck", func(spec *v1alpha1.PeerSpec) { spec.TwinNames = []string{framework.NamespacePrefix + "*"} })
	awaitCluster(t, lubeck, ns, "hamburg", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" && c.Twin == ns })
	lubeck.MustCreate(t, framework.Pod(ns, "named"))
	home := lubeck.AwaitReadyPods(t, ns, "named", 1)[0]
	if remote := hamburg.MustRemotePod(t, &home); remote.Namespace != ns {
		t.Errorf("it runs in namespace %s", remote.Namespace)
	}
	// A namespace that exists is not given to anybody.
	theirs := hamburg.MustNamespace(t)
	taken := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, Twin: &v1alpha1.TwinNaming{Naming: v1alpha1.TwinChosen, Name: theirs},
	})
	awaitCluster(t, lubeck, taken, "hamburg", func(c v1alpha1.ClusterOffloading) bool { return c.State != "Ready" && c.Message != "" })
	found := &corev1.Namespace{}
	if err := hamburg.Get(ctx, types.NamespacedName{Name: theirs}, found); err != nil || found.Labels[v1alpha1.LabelType] != "" {
		t.Errorf("hamburg's own namespace: %v %v", found.Labels, err)
	}
}

// TestOffloadSaysWhetherItHolds: kubectl hanse offload fails if the namespace cannot be offloaded, and then writes nothing useless.
func TestOffloadSaysWhetherItHolds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := lubeck.MustNamespace(t)
	expect := func(err error, says, namespace string, written bool) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("offloading %s says %v, want an error with %q", namespace, err, says)
		}
		got := &v1alpha1.NamespaceOffloading{}
		err = lubeck.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}, got)
		if there := err == nil; there != written || client.IgnoreNotFound(err) != nil {
			t.Errorf("namespace %s has a NamespaceOffloading: %t, %v", namespace, there, err)
		}
	}
	for _, system := range []string{"default", "kube-system"} {
		_, err := lubeck.Hanse(ctx, "offload", system)
		expect(err, "cannot be offloaded", system, false)
	}
	_, err := lubeck.Hanse(ctx, "offload", ns, "--cluster-selector", "sea=none")
	expect(err, "no virtual node has the labels", ns, false)
	_, err = lubeck.Hanse(ctx, "offload", ns, "--twin-name", "not-for-you")
	expect(err, v1alpha1.ReasonTwinNameForbidden, ns, true)
	if _, err := lubeck.Hanse(ctx, "offload", "-n", ns); err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.NamespaceOffloading{}
	if err := lubeck.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, got); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionPlaced} {
		said := meta.FindStatusCondition(got.Status.Conditions, kind)
		if said == nil || said.Status != metav1.ConditionTrue || said.ObservedGeneration != got.Generation {
			t.Errorf("offload has returned, and %s is %+v", kind, said)
		}
	}
}

// awaitCluster waits until the status of a NamespaceOffloading has an expected entry for the peer.
func awaitCluster(t *testing.T, c *framework.Cluster, ns, peer string, expected func(v1alpha1.ClusterOffloading) bool) {
	t.Helper()
	framework.Eventually(t, "the offloading of "+ns+" says what it should of "+peer, func(ctx context.Context) error {
		offloading := &v1alpha1.NamespaceOffloading{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
			return err
		}
		for _, entry := range offloading.Status.Clusters {
			if entry.Peer == peer && expected(entry) {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", offloading.Status.Clusters)
	})
}

// change changes the offloading of a namespace.
func change(t *testing.T, c *framework.Cluster, ns string, change func(*v1alpha1.NamespaceOffloadingSpec)) {
	t.Helper()
	framework.Eventually(t, "the offloading of "+ns+" is changed", func(ctx context.Context) error {
		now := &v1alpha1.NamespaceOffloading{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, now); err != nil {
			return err
		}
		changed := now.DeepCopy()
		change(&changed.Spec)
		return c.Patch(ctx, changed, client.MergeFrom(now))
	})
}

// TestChangeKeepsOrEvicts: a change of the NamespaceOffloading keeps pods where they are, or evicts them, as spec.onChange says.
func TestChangeKeepsOrEvicts(t *testing.T) {
	t.Parallel()
	for _, mode := range []v1alpha1.ChangeMode{v1alpha1.ChangeKeep, v1alpha1.ChangeEvict} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, OnChange: mode})
			lubeck.MustCreate(t, framework.Deployment(ns, "settled", 2, framework.PodSpec()))
			lubeck.MustCreate(t, framework.Pod(ns, "lone"))
			homes := append(lubeck.AwaitReadyPods(t, ns, "settled", 2), lubeck.AwaitReadyPods(t, ns, "lone", 1)...)
			before, alone := hamburg.MustRemotePod(t, &homes[0]), hamburg.MustRemotePod(t, &homes[2])
			change(t, lubeck, ns, func(spec *v1alpha1.NamespaceOffloadingSpec) { spec.Strategy = v1alpha1.StrategyLocal })
			if mode == v1alpha1.ChangeKeep {
				lubeck.AwaitAdmission(t, ns, v1alpha1.StrategyLocal)
				expectUntouched(t, lubeck, &homes[0], hamburg, before)
				expectUntouched(t, lubeck, &homes[2], hamburg, alone)
				return
			}
			framework.Eventually(t, "both pods run at home", func(ctx context.Context) error {
				pods, err := lubeck.Pods(ctx, ns, "settled")
				if err != nil {
					return err
				}
				atHome := 0
				for i := range pods {
					if framework.IsPodReady(&pods[i]) && !framework.IsVirtual(&pods[i]) {
						atHome++
					}
				}
				if atHome != 2 || len(pods) != 2 {
					return fmt.Errorf("%s", framework.Summary(pods))
				}
				return nil
			})
			isMadeAgainAtHome(t, lubeck, &homes[2])
		})
	}
}

// isMadeAgainAtHome waits until a standalone pod of the same name runs at home.
func isMadeAgainAtHome(t *testing.T, c *framework.Cluster, pod *corev1.Pod) {
	t.Helper()
	framework.Eventually(t, pod.Name+" runs at home", func(ctx context.Context) error {
		now, err := c.Pod(ctx, pod.Namespace, pod.Name)
		if err == nil && (now.UID == pod.UID || !framework.IsPodReady(now) || framework.IsVirtual(now)) {
			err = fmt.Errorf("%s", framework.Summary([]corev1.Pod{*now}))
		}
		return err
	})
}

// TestOffloadedByDefault: Hanse keeps a NamespaceOffloading in namespaces that the administrator selects.
func TestOffloadedByDefault(t *testing.T) {
	t.Parallel()
	ctx := t.Context() // the settings of the phase have namespaces of sailors offloaded
	ns := lubeck.MustNamespace(t)
	if _, err := lubeck.Kubectl(ctx, "label", "namespace", ns, "team=sailors"); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitAdmission(t, ns, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.Pod(ns, "carefree"))
	home := lubeck.AwaitReadyPods(t, ns, "carefree", 1)[0]
	framework.ExpectSamePod(t, &home, hamburg.MustRemotePod(t, &home))
	if _, err := lubeck.Kubectl(ctx, "label", "namespace", ns, "team-"); err != nil {
		t.Fatal(err)
	}
	offloading := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}}
	framework.Eventually(t, "it is not offloaded any more", func(ctx context.Context) error { return lubeck.Gone(ctx, offloading) })
}

// TestUnoffloadBringsHome: unoffload --evict moves remote pods home.
func TestUnoffloadBringsHome(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote})
	lubeck.MustCreate(t, framework.Deployment(ns, "returning", 2, framework.PodSpec()))
	lubeck.AwaitReadyPods(t, ns, "returning", 2)
	if _, err := lubeck.Hanse(ctx, "unoffload", ns, "--evict"); err != nil {
		t.Fatal(err)
	}
	for _, home := range lubeck.AwaitReadyPods(t, ns, "returning", 2) {
		if framework.IsVirtual(&home) {
			t.Errorf("%s is on %s", home.Name, home.Spec.NodeName)
		}
	}
	if err := lubeck.Gone(ctx, &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}}); err != nil {
		t.Error(err)
	}
}

// TestExplainAPodThatWasMadeTooEarly: explain tells that a pod is older than the NamespaceOffloading of its namespace.
func TestExplainAPodThatWasMadeTooEarly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := lubeck.MustNamespace(t)
	early := framework.Pod(ns, "early")
	early.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	lubeck.MustCreate(t, early)
	if _, err := lubeck.Hanse(ctx, "offload", ns); err != nil {
		t.Fatal(err)
	}
	out, err := lubeck.Hanse(ctx, "explain", "pod", "early", "-n", ns)
	if err != nil || !strings.Contains(out, "Stale: A new pod like it may run on hanse-") || strings.Contains(out, "ake room") {
		t.Errorf("it says %v\n%s", err, out)
	}
}

// changePeer changes a Peer until the end of the test.
func changePeer(t *testing.T, c *framework.Cluster, name string, change func(*v1alpha1.PeerSpec)) {
	t.Helper()
	before, err := c.Peer(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	set := func(change func(*v1alpha1.PeerSpec)) {
		t.Helper()
		framework.EventuallyAfter(t, "Peer "+name+" is changed", func(ctx context.Context) error {
			now, err := c.Peer(ctx, name)
			if err != nil {
				return err
			}
			changed := now.DeepCopy()
			change(&changed.Spec)
			return c.Patch(ctx, changed, client.MergeFrom(now))
		})
	}
	set(change)
	t.Cleanup(func() { set(func(spec *v1alpha1.PeerSpec) { before.Spec.DeepCopyInto(spec) }) })
}

// expectUntouched checks that the home pod is the same object and its containers are the same ones as before.
func expectUntouched(t *testing.T, consumer *framework.Cluster, home *corev1.Pod, provider *framework.Cluster, before *corev1.Pod) {
	t.Helper()
	now, err := consumer.Pod(t.Context(), home.Namespace, home.Name)
	if err != nil {
		t.Fatal(err)
	}
	if now.UID != home.UID {
		t.Errorf("home pod %s was %s and is %s", home.Name, home.UID, now.UID)
	}
	remote := provider.MustRemotePod(t, now)
	if remote.UID != before.UID {
		t.Errorf("remote pod of %s was %s and is %s", home.Name, before.UID, remote.UID)
	}
	if diff := cmp.Diff(framework.ContainerIDs(before), framework.ContainerIDs(remote)); diff != "" {
		t.Errorf("containers of %s: %s", home.Name, diff)
	}
	if diff := cmp.Diff(framework.ContainerIDs(remote), framework.ContainerIDs(now)); diff != "" {
		t.Errorf("containers of %s as home shows them: %s", home.Name, diff)
	}
}
