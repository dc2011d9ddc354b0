// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A cut is seen at home: the node and its pods are not Ready any more, and say why. What runs goes on running, and when
// the cut heals all is as it was.
func TestCutIsSeenAndHealed(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "steady", 3, framework.NewShellPodSpec(framework.RunForever)))
	homes := lubeck.AwaitReadyPods(t, ns, "steady", 3)
	before := map[string]*corev1.Pod{}
	for i := range homes {
		before[homes[i].Name] = hamburg.MustGetRemotePod(t, &homes[i])
	}

	framework.CutOff(t)
	framework.Eventually(t, "the node is not Ready", func(ctx context.Context) error {
		node, err := lubeck.GetNode(ctx, v1alpha1.VirtualNodeName("hamburg"))
		if err == nil && framework.IsNodeReady(node) {
			err = fmt.Errorf("it is Ready")
		}
		return err
	})
	framework.Eventually(t, "its pods are not Ready, and their containers are told of as before", func(ctx context.Context) error {
		for i := range homes {
			now, err := lubeck.GetPod(ctx, ns, homes[i].Name)
			if err != nil {
				return err
			}
			if framework.IsPodReady(now) || !now.DeletionTimestamp.IsZero() {
				return fmt.Errorf("%s: Ready=%t, deleted %v", now.Name, framework.IsPodReady(now), now.DeletionTimestamp)
			}
			if diff := cmp.Diff(framework.ContainerIDs(&homes[i]), framework.ContainerIDs(now)); diff != "" {
				return fmt.Errorf("containers of %s: %s", now.Name, diff)
			}
		}
		return nil
	})
	framework.Eventually(t, "the Peer says that it cannot be reached", func(ctx context.Context) error {
		return lubeck.CheckPeerCondition(ctx, "hamburg", v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable)
	})

	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	framework.Eventually(t, "the Peer can be reached again", func(ctx context.Context) error {
		return lubeck.CheckPeerHas(ctx, "hamburg", v1alpha1.ConditionReachable)
	})
	lubeck.AwaitReadyPods(t, ns, "steady", 3)
	for i := range homes {
		framework.ExpectUntouched(t, lubeck, &homes[i], hamburg, before[homes[i].Name])
	}
	if node, err := lubeck.GetNode(ctx, v1alpha1.VirtualNodeName("hamburg")); err != nil || !framework.IsNodeReady(node) {
		t.Errorf("the node is not Ready: %v", err)
	}
}

// Kubernetes evicts the pods of a node that is not ready after a time that it puts on every pod. Where nothing else is
// asked for, that time does not count for pods of a provider that is cut off, nor while `hanse kubelet` itself is down.
func TestWaitOutlivesEviction(t *testing.T) {
	framework.Begin(t)
	const afterSeconds = 10
	evictAfter(t, lubeck, afterSeconds)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	both := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "patient", 2, framework.NewShellPodSpec(framework.RunForever)))
	spec := framework.NewShellPodSpec(framework.RunForever)
	spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: "hamburg"}
	lubeck.MustCreate(t, framework.NewDeployment(both, "patient", 1, spec))
	homes := append(lubeck.AwaitReadyPods(t, ns, "patient", 2), lubeck.AwaitReadyPods(t, both, "patient", 1)...)
	before := make([]*corev1.Pod, len(homes))
	for i := range homes {
		before[i] = hamburg.MustGetRemotePod(t, &homes[i])
	}
	// A pod that chose a time of its own shows that Kubernetes does evict.
	impatient := framework.NewShellPod(ns, "impatient", framework.RunForever)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		impatient.Spec.Tolerations = append(impatient.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](afterSeconds + 10),
		})
	}
	for name, disturb := range map[string]func(t *testing.T) (heal func()){
		"the link is cut": func(t *testing.T) func() {
			framework.CutOff(t)
			return func() { framework.MustTestbed(t, "heal", "lubeck", "hamburg") }
		},
		"hanse kubelet is stopped": func(t *testing.T) func() {
			lubeck.PauseHanse(t, "kubelet")
			return func() { lubeck.ScaleHanse(t.Context(), t, "kubelet", "1") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			fickle := impatient.DeepCopy()
			lubeck.MustCreate(t, fickle)
			lubeck.AwaitReadyPods(t, ns, "impatient", 1)
			heal := disturb(t)
			framework.Eventually(t, "the pod that chose a time is evicted", func(ctx context.Context) error {
				now, err := lubeck.GetPod(ctx, ns, fickle.Name)
				if err == nil && now.DeletionTimestamp.IsZero() {
					err = fmt.Errorf("it is not: the node has taints %v", taints(ctx, lubeck, "hanse-hamburg"))
				}
				return err
			})
			heal()
			lubeck.AwaitReadyPods(t, ns, "patient", 2)
			lubeck.AwaitReadyPods(t, both, "patient", 1)
			for i := range homes {
				framework.ExpectUntouched(t, lubeck, &homes[i], hamburg, before[i])
			}
			framework.Eventually(t, "the evicted pod is gone on both sides", func(ctx context.Context) error {
				return lubeck.CheckGone(ctx, fickle.DeepCopy())
			})
		})
	}
}

// evictAfter has the cluster evict the pods of nodes that are not ready after so many seconds, until the story's end.
func evictAfter(t *testing.T, c *framework.Cluster, seconds int) {
	t.Helper()
	set := func(values []string, flags ...string) {
		t.Helper()
		args := []string{"up", c.Name}
		for _, flag := range flags {
			args = append(args, "--arg", flag)
		}
		framework.MustTestbed(t, args...)
		ctx, cancel := context.WithTimeout(context.Background(), framework.WaitTimeout)
		defer cancel()
		if err := framework.Install(ctx, c, values...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(nil, "") })
	text := fmt.Sprint(seconds)
	set([]string{"policies.defaultTolerationSeconds=" + text},
		"apiserver:default-not-ready-toleration-seconds="+text, "apiserver:default-unreachable-toleration-seconds="+text,
		"controller-manager:node-monitor-grace-period=20s")
}

func taints(ctx context.Context, c *framework.Cluster, name string) []corev1.Taint {
	node, err := c.GetNode(ctx, name)
	if err != nil {
		return nil
	}
	return node.Spec.Taints
}

// Where the user asks for it, the controller at home starts another pod after a time. When the cut heals, the older copy
// ends.
func TestReplace(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyLocalAndRemote, OnDisconnect: v1alpha1.DisconnectionReplace,
		ReplaceAfter: &metav1.Duration{Duration: 5 * time.Second},
		Placement:    &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}},
	})
	lubeck.AwaitPlacement(t, ns, func(decided *v1alpha1.PlacementStatus) error {
		if !decided.PrefersRemote {
			return fmt.Errorf("home comes first: %+v", decided)
		}
		return nil
	})
	lubeck.MustCreate(t, framework.NewDeployment(ns, "moving", 1, framework.NewShellPodSpec(framework.RunForever)))
	home := lubeck.AwaitReadyPods(t, ns, "moving", 1)[0]
	if !framework.IsOnVirtualNode(&home) {
		t.Fatalf("the pod is on node %s, although its namespace prefers others", home.Spec.NodeName)
	}
	older := hamburg.MustGetRemotePod(t, &home)

	framework.CutOff(t)
	replacement := lubeck.AwaitReplacement(t, &home)
	if still, err := hamburg.GetPod(t.Context(), older.Namespace, older.Name); err != nil || !still.DeletionTimestamp.IsZero() {
		t.Errorf("the older copy does not run any more while the provider is cut off: %v", err)
	}

	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	framework.Eventually(t, "the older copy and its home pod are gone", func(ctx context.Context) error {
		if err := hamburg.CheckGone(ctx, older.DeepCopy()); err != nil {
			return err
		}
		return lubeck.CheckGone(ctx, home.DeepCopy())
	})
	if now, err := lubeck.GetPod(t.Context(), ns, replacement.Name); err != nil || now.UID != replacement.UID || !framework.IsPodReady(now) {
		t.Errorf("the replacement is not what it was: %v", err)
	}
}
