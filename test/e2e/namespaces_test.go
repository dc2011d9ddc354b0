package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A user chooses what the namespace is called at the peer, where the provider's administrator lets that cluster choose.
func TestTwinNameIsChosen(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, Twin: &v1alpha1.TwinNaming{Naming: v1alpha1.TwinSameName},
	})
	lubeck.awaitCluster(t, ns, "hamburg", func(c v1alpha1.ClusterOffloading) bool {
		return c.State != "Ready" && strings.Contains(c.Message, ns)
	})
	hamburg.changePeer(t, "lubeck", func(spec *v1alpha1.PeerSpec) { spec.TwinNames = []string{"story-*"} })
	lubeck.awaitCluster(t, ns, "hamburg", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" && c.Twin == ns })
	lubeck.create(t, shellPod(ns, "named", forever))
	home := lubeck.awaitReadyPods(t, ns, "named", 1)[0]
	if remote := hamburg.mustRemotePod(t, &home); remote.Namespace != ns {
		t.Errorf("it runs in namespace %s", remote.Namespace)
	}
	// A namespace that exists is not given to anybody.
	theirs := hamburg.namespace(t)
	taken := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, Twin: &v1alpha1.TwinNaming{Naming: v1alpha1.TwinChosen, Name: theirs},
	})
	lubeck.awaitCluster(t, taken, "hamburg", func(c v1alpha1.ClusterOffloading) bool { return c.State != "Ready" && c.Message != "" })
	found := &corev1.Namespace{}
	if err := hamburg.Get(ctx, types.NamespacedName{Name: theirs}, found); err != nil || found.Labels[v1alpha1.LabelType] != "" {
		t.Errorf("hamburg's own namespace: %v %v", found.Labels, err)
	}
}

// The exit code of offload says whether it holds, and nothing is written that cannot come to anything.
func TestOffloadSaysWhetherItHolds(t *testing.T) {
	ctx := shared(t)
	ns := lubeck.namespace(t)
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

// awaitCluster waits for what the status of a namespace's offloading says of one peer.
func (c *cluster) awaitCluster(t *testing.T, ns, peer string, expected func(v1alpha1.ClusterOffloading) bool) {
	t.Helper()
	eventually(t, "the offloading of "+ns+" says what it should of "+peer, func(ctx context.Context) error {
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
func (c *cluster) change(t *testing.T, ns string, change func(*v1alpha1.NamespaceOffloadingSpec)) {
	t.Helper()
	eventually(t, "the offloading of "+ns+" is changed", func(ctx context.Context) error {
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
	shared(t)
	for _, mode := range []v1alpha1.ChangeMode{v1alpha1.ChangeKeep, v1alpha1.ChangeEvict} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ns := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote, OnChange: mode})
			lubeck.create(t, deployment(ns, "settled", 2, shellSpec(forever)))
			lubeck.create(t, shellPod(ns, "lone", forever))
			homes := append(lubeck.awaitReadyPods(t, ns, "settled", 2), lubeck.awaitReadyPods(t, ns, "lone", 1)...)
			before, alone := hamburg.mustRemotePod(t, &homes[0]), hamburg.mustRemotePod(t, &homes[2])
			lubeck.change(t, ns, func(spec *v1alpha1.NamespaceOffloadingSpec) { spec.Strategy = v1alpha1.StrategyLocal })
			if mode == v1alpha1.ChangeKeep {
				lubeck.awaitPolicy(t, ns, v1alpha1.StrategyLocal)
				expectUntouched(t, lubeck, &homes[0], hamburg, before)
				expectUntouched(t, lubeck, &homes[2], hamburg, alone)
				return
			}
			eventually(t, "both pods run at home", func(ctx context.Context) error {
				pods, err := lubeck.pods(ctx, ns, "settled")
				if err != nil {
					return err
				}
				atHome := 0
				for i := range pods {
					if podReady(&pods[i]) && !isVirtual(&pods[i]) {
						atHome++
					}
				}
				if atHome != 2 || len(pods) != 2 {
					return fmt.Errorf("%s", summary(pods))
				}
				return nil
			})
			lubeck.isMadeAgainAtHome(t, &homes[2])
		})
	}
}

// isMadeAgainAtHome waits until the pod that nobody else makes again runs at home under its name.
func (c *cluster) isMadeAgainAtHome(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, pod.Name+" runs at home", func(ctx context.Context) error {
		now, err := c.pod(ctx, pod.Namespace, pod.Name)
		if err == nil && (now.UID == pod.UID || !podReady(now) || isVirtual(now)) {
			err = fmt.Errorf("%s", summary([]corev1.Pod{*now}))
		}
		return err
	})
}

// Pods are changed for the clusters that an override selects.
func TestOverridesByCluster(t *testing.T) {
	shared(t)
	value := func(json string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(json)} }
	selects := func(peer string) *v1alpha1.ClusterSelector {
		return &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: v1alpha1.LabelValue(peer)}}
	}
	ns := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
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
	lubeck.create(t, shellPod(ns, "changed", "echo I am at $PLACE; "+strings.TrimPrefix(forever, "trap 'exit 0' TERM; echo started; ")))
	home := lubeck.awaitReadyPods(t, ns, "changed", 1)[0]
	if remote := hamburg.mustRemotePod(t, &home); remote.Labels["place"] != "harbour" || home.Labels["place"] != "" {
		t.Errorf("labels there: %v, at home: %v", remote.Labels, home.Labels)
	}
	lubeck.logSays(t, ns, "changed", "I am at the harbour\n")
}

// Where the administrator has namespaces offloaded, users need do nothing.
func TestOffloadedByDefault(t *testing.T) {
	ctx := shared(t) // the settings of the phase have namespaces of sailors offloaded
	ns := lubeck.namespace(t)
	if _, err := lubeck.Kubectl(ctx, "label", "namespace", ns, "team=sailors"); err != nil {
		t.Fatal(err)
	}
	lubeck.awaitPolicy(t, ns, v1alpha1.StrategyRemote)
	lubeck.create(t, shellPod(ns, "carefree", forever))
	home := lubeck.awaitReadyPods(t, ns, "carefree", 1)[0]
	expectSamePod(t, &home, hamburg.mustRemotePod(t, &home))
	if _, err := lubeck.Kubectl(ctx, "label", "namespace", ns, "team-"); err != nil {
		t.Fatal(err)
	}
	offloading := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}}
	eventually(t, "it is not offloaded any more", func(ctx context.Context) error { return lubeck.isGone(ctx, offloading) })
}

// unoffload --evict brings home what runs elsewhere.
func TestUnoffloadBringsHome(t *testing.T) {
	ctx := shared(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	lubeck.create(t, deployment(ns, "returning", 2, shellSpec(forever)))
	lubeck.awaitReadyPods(t, ns, "returning", 2)
	if _, err := lubeck.Hanse(ctx, "unoffload", ns, "--evict"); err != nil {
		t.Fatal(err)
	}
	for _, home := range lubeck.awaitReadyPods(t, ns, "returning", 2) {
		if isVirtual(&home) {
			t.Errorf("%s is on %s", home.Name, home.Spec.NodeName)
		}
	}
	if err := lubeck.isGone(ctx, &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}}); err != nil {
		t.Error(err)
	}
}

func TestExplainPod(t *testing.T) {
	ctx := shared(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	lubeck.create(t, shellPod(ns, "curious", forever))
	home := lubeck.awaitReadyPods(t, ns, "curious", 1)[0]
	lubeck.awaitCluster(t, ns, "hamburg", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" }) // which follows at most once a second
	remote := hamburg.mustRemotePod(t, &home)
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
	lubeck.create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "counter"},
		Spec:       corev1.ServiceSpec{Selector: home.Labels, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	explained("curious", v1alpha1.ReasonNoNetworkFabric, "counter")

	// One that runs and is not ready.
	sick := shellPod(ns, "sick", forever)
	sick.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/false"}}},
	}
	lubeck.create(t, sick)
	eventually(t, "it runs", func(ctx context.Context) error {
		pod, err := lubeck.pod(ctx, ns, "sick")
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
	lubeck.create(t, shellPod(ns, "crashing", "echo I cannot go on; exit 1"))
	eventually(t, "it says that a pod crashes, and its advice helps", func(ctx context.Context) error {
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
		return wants(logs, "I cannot go on", err)
	})
}

// A pod that was made before its namespace was offloaded may not go where a new one may.
func TestExplainAPodThatWasMadeTooEarly(t *testing.T) {
	ctx := shared(t)
	ns := lubeck.namespace(t)
	early := shellPod(ns, "early", forever)
	early.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	lubeck.create(t, early)
	if _, err := lubeck.Hanse(ctx, "offload", ns); err != nil {
		t.Fatal(err)
	}
	out, err := lubeck.Hanse(ctx, "explain", "pod", "early", "-n", ns)
	if err != nil || !strings.Contains(out, "Stale: A new pod like it may run on hanse-") || strings.Contains(out, "ake room") {
		t.Errorf("it says %v\n%s", err, out)
	}
}

// The API server reads the NamespaceOffloading with each pod that is made in its namespace, also one of the largest size.
func TestLargestNamespaceOffloading(t *testing.T) {
	ctx := shared(t)
	ns := lubeck.offloadedBy(t, largestOffloading())
	offloading := &v1alpha1.NamespaceOffloading{}
	if err := lubeck.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(offloading)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	lubeck.create(t, shellPod(ns, "guest", forever))
	t.Logf("a pod was made in %s beside a NamespaceOffloading of %d KiB", time.Since(start).Round(time.Millisecond), len(text)>>10)
	home := lubeck.awaitReadyPods(t, ns, "guest", 1)[0]
	eventually(t, "what was worked out for it is in its status", func(ctx context.Context) error {
		err := lubeck.Get(ctx, client.ObjectKeyFromObject(offloading), offloading)
		if err == nil && (offloading.Status.Placement == nil || len(offloading.Status.Placement.Classes) != 8) {
			err = fmt.Errorf("conditions: %+v", offloading.Status.Conditions)
		}
		return err
	})
	remote := hamburg.mustRemotePod(t, &home)
	if remote.Labels["patched"] != "15" {
		t.Errorf("the last of all changes was not made: %v", remote.Labels)
	}
}

// largestOffloading has as much of everything as its definition allows.
func largestOffloading() v1alpha1.NamespaceOffloadingSpec {
	values, names := make([]v1alpha1.LabelValue, 32), make([]string, 100)
	for i := range values {
		values[i] = v1alpha1.LabelValue(fmt.Sprintf("%063d", i))
	}
	for i := range names {
		names[i] = fmt.Sprintf("cluster-%032d", i)
	}
	selector := &v1alpha1.ClusterSelector{}
	for range 4 {
		selector.MatchExpressions = append(selector.MatchExpressions, v1alpha1.ClusterSelectorRequirement{
			Key: v1alpha1.LabelClusterID, Operator: metav1.LabelSelectorOpNotIn, Values: values,
		})
	}
	spec := v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, ClusterSelector: selector,
		Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: names}},
	}
	for i := range 8 {
		override := v1alpha1.ClusterOverride{ClusterSelector: selector}
		for op := range 16 {
			override.Patch = append(override.Patch, v1alpha1.PatchOperation{
				Op: "add", Path: "/metadata/labels/patched", Value: &runtime.RawExtension{Raw: fmt.Appendf(nil, "%q", fmt.Sprint(op))},
			})
		}
		spec.Overrides = append(spec.Overrides, override)
		spec.Placement.Classes = append(spec.Placement.Classes, v1alpha1.PlacementClass{
			Name: fmt.Sprint("class-", i), PodLabels: map[string]v1alpha1.LabelValue{"class": values[i]}, Placement: v1alpha1.Placement{Exclude: names},
		})
	}
	return spec
}
