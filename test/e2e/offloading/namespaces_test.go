// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

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

// A later change of the offloading lets pods be where they are, or moves them, as its author says.
func TestChangeKeepsOrEvicts(t *testing.T) {
	framework.Begin(t)
	for _, mode := range []v1alpha1.ChangeMode{v1alpha1.ChangeKeep, v1alpha1.ChangeEvict} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, OnChange: mode})
			lubeck.MustCreate(t, framework.NewDeployment(ns, "settled", 2, framework.NewShellPodSpec(framework.RunForever)))
			lubeck.MustCreate(t, framework.NewShellPod(ns, "lone", framework.RunForever))
			homes := append(lubeck.AwaitReadyPods(t, ns, "settled", 2), lubeck.AwaitReadyPods(t, ns, "lone", 1)...)
			before, alone := hamburg.MustGetRemotePod(t, &homes[0]), hamburg.MustGetRemotePod(t, &homes[2])
			change(t, lubeck, ns, func(spec *v1alpha1.NamespaceOffloadingSpec) { spec.Strategy = v1alpha1.StrategyLocal })
			if mode == v1alpha1.ChangeKeep {
				lubeck.AwaitAdmissionPolicy(t, ns, v1alpha1.StrategyLocal)
				framework.ExpectUntouched(t, lubeck, &homes[0], hamburg, before)
				framework.ExpectUntouched(t, lubeck, &homes[2], hamburg, alone)
				return
			}
			framework.Eventually(t, "both pods run at home", func(ctx context.Context) error {
				pods, err := lubeck.GetPods(ctx, ns, "settled")
				if err != nil {
					return err
				}
				atHome := 0
				for i := range pods {
					if framework.IsPodReady(&pods[i]) && !framework.IsOnVirtualNode(&pods[i]) {
						atHome++
					}
				}
				if atHome != 2 || len(pods) != 2 {
					return fmt.Errorf("%s", framework.Summarize(pods))
				}
				return nil
			})
			lubeck.AwaitRecreatedAtHome(t, &homes[2])
		})
	}
}

// Pods are changed for the clusters that an override selects.
func TestOverridesByCluster(t *testing.T) {
	framework.Begin(t)
	value := func(json string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(json)} }
	selects := func(peer string) *v1alpha1.ClusterSelector {
		return &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: v1alpha1.LabelValue(peer)}}
	}
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote,
		Overrides: []v1alpha1.ClusterOverride{
			{ClusterSelector: selects("hamburg"), Patch: []v1alpha1.PatchOperation{
				{Op: "add", Path: "/spec/containers/0/env", Value: value(`[{"name":"PLACE","value":"the harbour"}]`)},
				{Op: "add", Path: "/metadata/labels/place", Value: value(`"harbour"`)},
			}},
			{ClusterSelector: selects("elsewhere"), Patch: []v1alpha1.PatchOperation{
				{Op: "add", Path: "/metadata/labels/place", Value: value(`"elsewhere"`)},
			}},
		},
	})
	lubeck.MustCreate(t, framework.NewShellPod(ns, "changed", "echo I am at $PLACE; "+strings.TrimPrefix(framework.RunForever, "trap 'exit 0' TERM; echo started; ")))
	home := lubeck.AwaitReadyPods(t, ns, "changed", 1)[0]
	if remote := hamburg.MustGetRemotePod(t, &home); remote.Labels["place"] != "harbour" || home.Labels["place"] != "" {
		t.Errorf("labels there: %v, at home: %v", remote.Labels, home.Labels)
	}
	logSays(t, lubeck, ns, "changed", "I am at the harbour\n")
}

// Where the administrator has namespaces offloaded, users need do nothing.
func TestOffloadedByDefault(t *testing.T) {
	ctx := framework.Begin(t) // the settings of the phase have namespaces of sailors offloaded
	ns := lubeck.CreateNamespace(t)
	if _, err := lubeck.Kubectl(ctx, "label", "namespace", ns, "team=sailors"); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitAdmissionPolicy(t, ns, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "carefree", framework.RunForever))
	home := lubeck.AwaitReadyPods(t, ns, "carefree", 1)[0]
	framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))
	if _, err := lubeck.Kubectl(ctx, "label", "namespace", ns, "team-"); err != nil {
		t.Fatal(err)
	}
	offloading := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}}
	framework.Eventually(t, "it is not offloaded any more", func(ctx context.Context) error { return lubeck.CheckGone(ctx, offloading) })
}

// unoffload --evict brings home what runs elsewhere.
func TestUnoffloadBringsHome(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "returning", 2, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.AwaitReadyPods(t, ns, "returning", 2)
	if _, err := lubeck.Hanse(ctx, "unoffload", ns, "--evict"); err != nil {
		t.Fatal(err)
	}
	for _, home := range lubeck.AwaitReadyPods(t, ns, "returning", 2) {
		if framework.IsOnVirtualNode(&home) {
			t.Errorf("%s is on %s", home.Name, home.Spec.NodeName)
		}
	}
	if err := lubeck.CheckGone(ctx, &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}}); err != nil {
		t.Error(err)
	}
}

func TestExplainPod(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "curious", framework.RunForever))
	home := lubeck.AwaitReadyPods(t, ns, "curious", 1)[0]
	lubeck.AwaitClusterStatus(t, ns, "hamburg", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" }) // which follows at most once a second
	remote := hamburg.MustGetRemotePod(t, &home)
	explained := func(pod string, says ...string) {
		t.Helper()
		out, err := lubeck.Hanse(ctx, "explain", "pod", pod, "-n", ns)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range says {
			if !strings.Contains(out, part) {
				t.Errorf("of pod %s it does not say %q:\n%s", pod, part, out)
			}
		}
		if well := "Nothing is wrong."; strings.Contains(out, well) && !slices.Contains(says, well) {
			t.Errorf("of pod %s it says that all is well:\n%s", pod, out)
		}
	}
	explained("curious", "Pod:       "+ns+"/curious\n",
		"at peer hamburg (cluster hamburg), on virtual node hanse-hamburg, in namespace "+remote.Namespace+" there",
		"offloaded with strategy Remote", "State:     Running, ready, 0 restarts\n", "container main: running, 0 restarts\n", "Nothing is wrong.")

	// A Service that is meant to reach it.
	lubeck.MustCreate(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "counter"},
		Spec:       corev1.ServiceSpec{Selector: home.Labels, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	explained("curious", v1alpha1.ReasonNoNetworkFabric, "counter")

	// One that runs and is not ready.
	sick := framework.NewShellPod(ns, "sick", framework.RunForever)
	sick.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/false"}}},
	}
	lubeck.MustCreate(t, sick)
	framework.Eventually(t, "it runs", func(ctx context.Context) error {
		pod, err := lubeck.GetPod(ctx, ns, "sick")
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	explained("sick", "What is wrong")
	expectAdviceThatHelps(t, ns)
}

// expectAdviceThatHelps follows what explain advises about a pod that crashes, and finds the cause: in what runs, or, while it is
// about to be started again, in what ran before.
func expectAdviceThatHelps(t *testing.T, ns string) {
	t.Helper()
	lubeck.MustCreate(t, framework.NewShellPod(ns, "crashing", "echo I cannot go on; exit 1"))
	framework.Eventually(t, "it says that a pod crashes, and its advice helps", func(ctx context.Context) error {
		out, err := lubeck.Hanse(ctx, "explain", "pod", "crashing", "-n", ns)
		if err != nil {
			return err
		}
		_, advice, advised := strings.Cut(out, "fix: kubectl logs -n "+ns+" crashing -c main")
		if !advised || !strings.Contains(out, "CrashLoopBackOff") && !strings.Contains(out, "ended with exit code 1") {
			return fmt.Errorf("it says %s", out)
		}
		previous, _, _ := strings.Cut(advice, "\n")
		logs, err := lubeck.Kubectl(ctx, append([]string{"logs", "-n", ns, "crashing", "-c", "main"}, strings.Fields(previous)...)...)
		return framework.CheckOutput(logs, "I cannot go on", err)
	})
}
