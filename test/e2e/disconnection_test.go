package e2e

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
)

// A cut is seen at home: the node and its pods are not Ready any more, and say why. What runs goes on running, and when
// the cut heals all is as it was.
func TestCutIsSeenAndHealed(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	lubeck.create(t, deployment(ns, "steady", 3, shellSpec(forever)))
	homes := lubeck.awaitReadyPods(t, ns, "steady", 3)
	before := map[string]*corev1.Pod{}
	for i := range homes {
		before[homes[i].Name] = hamburg.mustRemotePod(t, &homes[i])
	}

	cutOff(t)
	eventually(t, "the node is not Ready", func(ctx context.Context) error {
		node, err := lubeck.node(ctx, v1alpha1.VirtualNodeName("hamburg"))
		if err == nil && nodeReady(node) {
			err = fmt.Errorf("it is Ready")
		}
		return err
	})
	eventually(t, "its pods are not Ready, and their containers are told of as before", func(ctx context.Context) error {
		for i := range homes {
			now, err := lubeck.pod(ctx, ns, homes[i].Name)
			if err != nil {
				return err
			}
			if podReady(now) || !now.DeletionTimestamp.IsZero() {
				return fmt.Errorf("%s: Ready=%t, deleted %v", now.Name, podReady(now), now.DeletionTimestamp)
			}
			if diff := cmp.Diff(containerIDs(&homes[i]), containerIDs(now)); diff != "" {
				return fmt.Errorf("containers of %s: %s", now.Name, diff)
			}
		}
		return nil
	})
	eventually(t, "the Peer says that it cannot be reached", func(ctx context.Context) error {
		return lubeck.peerSays(ctx, "hamburg", v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable)
	})

	mustTestbed(t, "heal", "lubeck", "hamburg")
	eventually(t, "the Peer can be reached again", func(ctx context.Context) error {
		return lubeck.peerHas(ctx, "hamburg", v1alpha1.ConditionReachable)
	})
	lubeck.awaitReadyPods(t, ns, "steady", 3)
	for i := range homes {
		expectUntouched(t, lubeck, &homes[i], hamburg, before[homes[i].Name])
	}
	if node, err := lubeck.node(ctx, v1alpha1.VirtualNodeName("hamburg")); err != nil || !nodeReady(node) {
		t.Errorf("the node is not Ready: %v", err)
	}
}

// cutOff cuts lubeck and hamburg off from each other until it is healed, at the story's end at the latest.
func cutOff(t *testing.T) {
	t.Helper()
	mustTestbed(t, "cut", "lubeck", "hamburg")
	t.Cleanup(func() { mustTestbed(t, "heal", "lubeck", "hamburg") })
}

// Kubernetes evicts the pods of a node that is not ready after a time that it puts on every pod. Where nothing else is
// asked for, that time does not count for pods of a provider that is cut off, nor while `hanse kubelet` itself is down.
func TestWaitOutlivesEviction(t *testing.T) {
	alone(t)
	const afterSeconds = 10
	lubeck.evictAfter(t, afterSeconds)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	both := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	lubeck.create(t, deployment(ns, "patient", 2, shellSpec(forever)))
	spec := shellSpec(forever)
	spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: "hamburg"}
	lubeck.create(t, deployment(both, "patient", 1, spec))
	homes := append(lubeck.awaitReadyPods(t, ns, "patient", 2), lubeck.awaitReadyPods(t, both, "patient", 1)...)
	before := make([]*corev1.Pod, len(homes))
	for i := range homes {
		before[i] = hamburg.mustRemotePod(t, &homes[i])
	}
	// A pod that chose a time of its own shows that Kubernetes does evict.
	impatient := shellPod(ns, "impatient", forever)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		impatient.Spec.Tolerations = append(impatient.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](afterSeconds + 10),
		})
	}
	for name, disturb := range map[string]func(t *testing.T) (heal func()){
		"the link is cut": func(t *testing.T) func() {
			cutOff(t)
			return func() { mustTestbed(t, "heal", "lubeck", "hamburg") }
		},
		"hanse kubelet is stopped": func(t *testing.T) func() {
			lubeck.pause(t, "kubelet")
			return func() { lubeck.scale(t.Context(), t, "kubelet", "1") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			fickle := impatient.DeepCopy()
			lubeck.create(t, fickle)
			lubeck.awaitReadyPods(t, ns, "impatient", 1)
			heal := disturb(t)
			eventually(t, "the pod that chose a time is evicted", func(ctx context.Context) error {
				now, err := lubeck.pod(ctx, ns, fickle.Name)
				if err == nil && now.DeletionTimestamp.IsZero() {
					err = fmt.Errorf("it is not: the node has taints %v", lubeck.taints(ctx, "hanse-hamburg"))
				}
				return err
			})
			heal()
			lubeck.awaitReadyPods(t, ns, "patient", 2)
			lubeck.awaitReadyPods(t, both, "patient", 1)
			for i := range homes {
				expectUntouched(t, lubeck, &homes[i], hamburg, before[i])
			}
			eventually(t, "the evicted pod is gone on both sides", func(ctx context.Context) error {
				return lubeck.isGone(ctx, fickle.DeepCopy())
			})
		})
	}
}

// evictAfter has the cluster evict the pods of nodes that are not ready after so many seconds, until the story's end.
func (c *cluster) evictAfter(t *testing.T, seconds int) {
	t.Helper()
	set := func(values []string, flags ...string) {
		t.Helper()
		args := []string{"up", c.Name}
		for _, flag := range flags {
			args = append(args, "--arg", flag)
		}
		mustTestbed(t, args...)
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := installWith(ctx, c, values...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(nil, "") })
	text := fmt.Sprint(seconds)
	set([]string{"policies.defaultTolerationSeconds=" + text},
		"apiserver:default-not-ready-toleration-seconds="+text, "apiserver:default-unreachable-toleration-seconds="+text,
		"controller-manager:node-monitor-grace-period=20s")
}

func (c *cluster) taints(ctx context.Context, name string) []corev1.Taint {
	node, err := c.node(ctx, name)
	if err != nil {
		return nil
	}
	return node.Spec.Taints
}

// Where the user asks for it, the controller at home starts another pod after a time. When the cut heals, the older copy
// ends.
func TestReplace(t *testing.T) {
	alone(t)
	ns := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyLocalAndRemote, OnDisconnect: v1alpha1.DisconnectionReplace,
		ReplaceAfter: &metav1.Duration{Duration: 5 * time.Second},
		Placement:    &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}},
	})
	lubeck.awaitPlacement(t, ns, func(decided *v1alpha1.PlacementStatus) error {
		if !decided.PrefersRemote {
			return fmt.Errorf("home comes first: %+v", decided)
		}
		return nil
	})
	lubeck.create(t, deployment(ns, "moving", 1, shellSpec(forever)))
	home := lubeck.awaitReadyPods(t, ns, "moving", 1)[0]
	if !isVirtual(&home) {
		t.Fatalf("the pod is on node %s, although its namespace prefers others", home.Spec.NodeName)
	}
	older := hamburg.mustRemotePod(t, &home)

	cutOff(t)
	replacement := lubeck.awaitReplacement(t, &home)
	if still, err := hamburg.pod(t.Context(), older.Namespace, older.Name); err != nil || !still.DeletionTimestamp.IsZero() {
		t.Errorf("the older copy does not run any more while the provider is cut off: %v", err)
	}

	mustTestbed(t, "heal", "lubeck", "hamburg")
	eventually(t, "the older copy and its home pod are gone", func(ctx context.Context) error {
		if err := hamburg.isGone(ctx, older.DeepCopy()); err != nil {
			return err
		}
		return lubeck.isGone(ctx, home.DeepCopy())
	})
	if now, err := lubeck.pod(t.Context(), ns, replacement.Name); err != nil || now.UID != replacement.UID || !podReady(now) {
		t.Errorf("the replacement is not what it was: %v", err)
	}
}

// awaitReplacement waits for another pod of the same app that runs on a node of this cluster.
func (c *cluster) awaitReplacement(t *testing.T, of *corev1.Pod) *corev1.Pod {
	t.Helper()
	replacement := &corev1.Pod{}
	eventually(t, "another pod runs at home", func(ctx context.Context) error {
		pods, err := c.pods(ctx, of.Namespace, of.Labels["app"])
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].UID != of.UID && podReady(&pods[i]) && !isVirtual(&pods[i]) {
				pods[i].DeepCopyInto(replacement)
				return nil
			}
		}
		return fmt.Errorf("no: %s", summary(pods))
	})
	return replacement
}
