// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/move"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// These tests examine Kubernetes, not Hanse: which pod a ReplicaSet deletes when it has one too many. The controller manager is
// real. The tests play kubelet and scheduler where that is quicker.

// byHand names no scheduler: a pod with that scheduler waits until the test binds it.
const byHand = "by-hand"

// Nodes that do not exist. A pod that is bound to one has the status that the test gives it. Kubernetes deletes such pods after
// 40 s, which is long after a test has ended.
const (
	nodeA = "a.invalid"
	nodeB = "b.invalid"
)

// labelNew is a label of the template. The test removes it from a pod when the pod is ready for the test. The controller counts the
// pods with all labels of its template, so that its status shows which changes it has seen.
const labelNew = "new"

// podTraits are the fields by which the controller compares pods.
type podTraits struct {
	node               string
	phase              corev1.PodPhase
	ready              time.Duration // for how long; 0 is not Ready
	cost               string
	restarts, sidecars int32 // of its container, and of its sidecar
}

func running(on string, ready time.Duration) podTraits {
	return podTraits{node: on, phase: corev1.PodRunning, ready: ready}
}

func (p podTraits) costing(cost string) podTraits {
	p.cost = cost
	return p
}

func (p podTraits) restarted(container, sidecar int32) podTraits {
	p.restarts, p.sidecars = container, sidecar
	return p
}

// Each entry isolates one rule of the order in which a ReplicaSet deletes its pods: all later rules decide the opposite. Times of
// Ready are compared by their powers of two: 1000 s, 3000 s and 3600 s are 2^39, 2^41 and 2^41 ns.
var deletionRules = []struct {
	rule         string
	goes         podTraits
	stay         []podTraits
	goesByLowUID bool // otherwise the pod that goes has the highest UID, so that the UID does not speak for it
	owned        bool // the ReplicaSet is somebody's, as those of Deployments are
}{
	{
		rule: "without a node before Pending", goes: podTraits{phase: corev1.PodPending, cost: move.HighestCost},
		stay: []podTraits{{node: nodeA, phase: corev1.PodPending, cost: move.LowestCost}},
	},
	{
		rule: "Pending before Unknown", goes: podTraits{node: nodeA, phase: corev1.PodPending, cost: move.HighestCost},
		stay: []podTraits{{node: nodeB, phase: corev1.PodUnknown, cost: move.LowestCost}},
	},
	{
		rule: "Unknown before Running", goes: podTraits{node: nodeA, phase: corev1.PodUnknown, cost: move.HighestCost},
		stay: []podTraits{{node: nodeB, phase: corev1.PodRunning, cost: move.LowestCost}},
	},
	{
		rule: "not Ready before Ready", goes: running(nodeA, 0).costing(move.HighestCost),
		stay: []podTraits{running(nodeB, time.Minute).costing(move.LowestCost).restarted(5, 5)},
	},
	{
		rule: "the lowest cost first", goes: running(nodeA, 3000*time.Second).costing("-1"),
		stay: []podTraits{running(nodeB, time.Minute), running(nodeB, time.Minute).costing("1").restarted(5, 5)},
	},
	{
		rule: "of a Deployment, with most of its pods on the node first", goes: running(nodeA, 1000*time.Second), owned: true,
		stay: []podTraits{running(nodeA, 3000*time.Second), running(nodeB, time.Minute).restarted(5, 5)},
	},
	{
		rule: "of a ReplicaSet alone, whatever is on the node", goes: running(nodeB, time.Minute),
		stay: []podTraits{running(nodeA, 1000*time.Second), running(nodeA, 3000*time.Second)},
	},
	{
		rule: "Ready for less time first", goes: running(nodeA, 1000*time.Second),
		stay: []podTraits{running(nodeB, 3000*time.Second).restarted(5, 5)},
	},
	{
		rule: "of one power of two, by UID, though Ready for longer", goes: running(nodeA, 3600*time.Second), goesByLowUID: true,
		stay: []podTraits{running(nodeB, 3000*time.Second).restarted(5, 5)},
	},
	{
		rule: "with most restarts first", goes: running(nodeA, time.Minute).restarted(2, 0),
		stay: []podTraits{running(nodeB, time.Minute).restarted(1, 5)},
	},
	{
		rule: "then with most restarts of sidecars", goes: running(nodeA, time.Minute).restarted(1, 2),
		stay: []podTraits{running(nodeB, time.Minute).restarted(1, 1)},
	},
}

// All ReplicaSets are prepared and scaled down side by side, since most of the time is waiting.
func TestReplicaSetDeletesByTheseRules(t *testing.T) {
	t.Parallel()
	ns := lubeck.MustNamespace(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"}} // whose kind does not matter
	lubeck.MustCreate(t, owner)
	name := func(i int) string { return fmt.Sprintf("rule-%d", i+1) }
	for i, r := range deletionRules {
		set := setByHand(ns, name(i), int32(1+len(r.stay)))
		set.Spec.Template.Spec.InitContainers = []corev1.Container{
			{Name: "sidecar", Image: framework.TestImage, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		}
		if r.owned {
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
			set.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "1"
		}
		lubeck.MustCreate(t, set)
	}
	now := metav1.Now()
	goes := make([]corev1.Pod, len(deletionRules))
	for i, r := range deletionRules {
		pods := awaitPods(t, lubeck, ns, name(i), 1+len(r.stay))
		slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(b.UID, a.UID) })
		if r.goesByLowUID {
			slices.Reverse(pods)
		}
		goes[i] = pods[0]
		for p, traits := range append([]podTraits{r.goes}, r.stay...) {
			give(t, lubeck, &pods[p], traits, now)
		}
	}
	for i, r := range deletionRules {
		pods, err := lubeck.Pods(t.Context(), ns, name(i))
		if first := move.DeletionOrder(pods, time.Now())[0]; err != nil || first.UID != goes[i].UID {
			t.Errorf("%s: Hanse takes it that %s goes, not %s (%v)", r.rule, first.Name, goes[i].Name, err)
		}
		scaleDown(t, ns, name(i), len(pods), len(r.stay))
	}
	for i, r := range deletionRules {
		t.Run(r.rule, func(t *testing.T) { hasDeleted(t, ns, name(i), &goes[i], len(r.stay)) })
	}
}

// TestEarlierRunningSurvives deletes a pod of a ReplicaSet and creates a copy of it, before a scheduler has bound the replacement.
// When the controller sees the copy, it keeps the pod that runs, whoever created it.
func TestEarlierRunningSurvives(t *testing.T) {
	t.Parallel()
	ns := lubeck.MustNamespace(t)
	worker := "lubeck-simulated-1"
	for _, first := range []string{"copy", "controllers"} {
		t.Run(first, func(t *testing.T) {
			replacement := killed(t, lubeck, ns, first)
			hidden := copied(t, lubeck, ns, first, map[string]string{labelNew: ""})
			runs, waits := hidden, replacement
			if first == "controllers" {
				runs, waits = replacement, hidden
			}
			bind(t, lubeck, runs, worker)
			framework.Eventually(t, runs.Name+" is Ready", func(ctx context.Context) error {
				pod, err := lubeck.Pod(ctx, ns, runs.Name)
				if err == nil && !framework.IsPodReady(pod) {
					err = errors.New(framework.Summary([]corev1.Pod{*pod}))
				}
				return err
			})
			bind(t, lubeck, waits, nodeA) // where it is Pending
			mergePatch(t, lubeck, hidden, fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, first))
			hasDeleted(t, ns, first, waits, 1)
		})
	}
}

// TestUnassignedLoses: the controller deletes an unbound replacement, even if the copy does not run yet. Of two unbound pods it
// deletes the younger one, so that a controller must not see a copy from the beginning.
func TestUnassignedLoses(t *testing.T) {
	t.Parallel()
	ns := lubeck.MustNamespace(t)
	older := killed(t, lubeck, ns, "both-wait")

	replacement := killed(t, lubeck, ns, "one-waits")
	hidden := copied(t, lubeck, ns, "one-waits", map[string]string{labelNew: ""})
	bind(t, lubeck, hidden, nodeA)
	mergePatch(t, lubeck, hidden, `{"metadata":{"labels":{"app":"one-waits"}}}`)
	hasDeleted(t, ns, "one-waits", replacement, 1)

	framework.Eventually(t, "the one is so much older that it counts", func(context.Context) error {
		if age := time.Since(older.CreationTimestamp.Time); age < 4*time.Second {
			return fmt.Errorf("it is %s old", age)
		}
		return nil
	})
	younger := copied(t, lubeck, ns, "both-wait", map[string]string{"app": "both-wait"})
	hasDeleted(t, ns, "both-wait", younger, 1)
}

func setByHand(ns, name string, replicas int32) *appsv1.ReplicaSet {
	spec := framework.PodSpec()
	spec.SchedulerName = byHand
	spec.TerminationGracePeriodSeconds = ptr.To[int64](0) // there is no kubelet that would end the pods of nodes that do not exist
	set := &appsv1.ReplicaSet{}
	set.Namespace, set.Name = ns, name
	set.Spec.Replicas = &replicas
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	set.Spec.Template.Labels = map[string]string{"app": name, labelNew: ""}
	set.Spec.Template.Spec = spec
	return set
}

// awaitPods waits until there are as many pods of the app, and returns them.
func awaitPods(t *testing.T, c *framework.Cluster, ns, app string, count int) (pods []corev1.Pod) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("there are %d pods of %s", count, app), func(ctx context.Context) (err error) {
		if pods, err = c.Pods(ctx, ns, app); err == nil && len(pods) != count {
			err = fmt.Errorf("there are %d", len(pods))
		}
		return err
	})
	return pods
}

// give sets the traits of a pod, and then removes its labelNew.
func give(t *testing.T, c *framework.Cluster, pod *corev1.Pod, p podTraits, now metav1.Time) {
	t.Helper()
	if p.node != "" {
		bind(t, c, pod, p.node)
	}
	before := pod.DeepCopy()
	pod.Status.Phase = p.phase
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: now}
	if p.ready > 0 {
		ready.Status, ready.LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(now.Add(-p.ready))
	}
	pod.Status.Conditions = []corev1.PodCondition{ready}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: p.restarts}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", RestartCount: p.sidecars}}
	if err := c.Status().Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	mergePatch(t, c, pod, fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:%q}}}`, labelNew, corev1.PodDeletionCost, cmp.Or(p.cost, "0")))
}

func bind(t *testing.T, c *framework.Cluster, pod *corev1.Pod, node string) {
	t.Helper()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := c.SubResource("binding").Create(t.Context(), pod.DeepCopy(), binding); err != nil {
		t.Fatal(err)
	}
}

func mergePatch(t *testing.T, c *framework.Cluster, object client.Object, patch string) {
	t.Helper()
	if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// scaleDown scales the ReplicaSet as soon as the controller has seen the traits of all its pods.
func scaleDown(t *testing.T, ns, name string, pods, to int) {
	t.Helper()
	set := &appsv1.ReplicaSet{}
	framework.Eventually(t, "the controller has seen the pods of "+name, func(ctx context.Context) error {
		err := lubeck.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, set)
		if err == nil && (set.Status.Replicas != int32(pods) || set.Status.FullyLabeledReplicas > 0) {
			err = fmt.Errorf("it has seen %+v", set.Status)
		}
		return err
	})
	mergePatch(t, lubeck, set, fmt.Sprintf(`{"spec":{"replicas":%d}}`, to))
}

// hasDeleted waits until so many pods of the app are left, and checks that this pod is not among them.
func hasDeleted(t *testing.T, ns, app string, pod *corev1.Pod, left int) {
	t.Helper()
	pods := awaitPods(t, lubeck, ns, app, left)
	if slices.ContainsFunc(pods, func(other corev1.Pod) bool { return other.UID == pod.UID }) {
		t.Errorf("%s should have been deleted, and these are left:%s", pod.Name, framework.Summary(pods))
	}
}

// killed deletes the only pod of a ReplicaSet, and returns the replacement.
func killed(t *testing.T, c *framework.Cluster, ns, app string) (replacement *corev1.Pod) {
	t.Helper()
	c.MustCreate(t, setByHand(ns, app, 1))
	first := awaitPods(t, c, ns, app, 1)[0]
	give(t, c, &first, running(nodeA, time.Minute), metav1.Now())
	if err := c.Delete(t.Context(), first.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	return &awaitPods(t, c, ns, app, 1)[0]
}

// copied creates a pod as the ReplicaSet does, but with these labels.
func copied(t *testing.T, c *framework.Cluster, ns, app string, labels map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{Spec: setByHand(ns, app, 1).Spec.Template.Spec}
	pod.Namespace, pod.Name, pod.Labels = ns, app+"-copy", labels
	c.MustCreate(t, pod)
	return pod
}
