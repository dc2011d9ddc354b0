// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// hasMoved moves the pod, and returns the one that is in its place.
func hasMoved(t *testing.T, c *framework.Cluster, pod *corev1.Pod, to v1alpha1.MoveDestination, node string) *corev1.Pod {
	t.Helper()
	move := c.AwaitMove(t, c.CreatePodMove(t, pod, to, framework.WaitTimeout), v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
	first, last := move.Status.Steps[0].Time, move.Status.Steps[len(move.Status.Steps)-1].Time
	t.Logf("%s went from %s to %s in %s: %+v", pod.Name, pod.Spec.NodeName, node, last.Sub(first.Time), move.Status.Steps)
	now, err := c.GetPod(t.Context(), pod.Namespace, move.Status.Copy.Name)
	if err != nil {
		t.Fatal(err)
	}
	if now.UID != move.Status.Copy.UID || now.Spec.NodeName != node || !framework.IsPodReady(now) || now.DeletionTimestamp != nil {
		t.Fatalf("in its place is %s", framework.Summarize([]corev1.Pod{*now}))
	}
	framework.Eventually(t, "the original is gone", func(ctx context.Context) error { return c.CheckGone(ctx, pod.DeepCopy()) })
	return now
}

// A witness writes down how many pods of an app were Ready at each moment: the fewest and the most of any of its apps. Copies that are not
// their owner's yet count too, since they serve.
type witness struct {
	ready       map[string]map[types.UID]bool // app → its Ready pods
	least, most int
}

// sees takes note of the pod, and of how many there are with it.
func (w *witness) sees(pod *corev1.Pod, exists bool) {
	ready := w.ready[pod.Labels["app"]]
	if ready == nil {
		return
	}
	delete(ready, pod.UID)
	if exists && pod.DeletionTimestamp == nil && framework.IsPodReady(pod) {
		ready[pod.UID] = true
	}
	w.least, w.most = min(w.least, len(ready)), max(w.most, len(ready))
}

// watchReady begins to count the pods of these apps. The result is read after stop.
func watchReady(t *testing.T, c *framework.Cluster, ns string, apps ...string) (w *witness, stop func()) {
	t.Helper()
	watching, err := client.NewWithWatch(c.Config, client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	now := &corev1.PodList{}
	if err := watching.List(t.Context(), now, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	w = &witness{ready: map[string]map[types.UID]bool{}}
	for _, app := range apps {
		w.ready[app] = map[types.UID]bool{}
	}
	for i := range now.Items {
		w.sees(&now.Items[i], true)
	}
	w.least = w.most
	for _, ready := range w.ready {
		w.least = min(w.least, len(ready))
	}
	since := &client.ListOptions{Namespace: ns, Raw: &metav1.ListOptions{ResourceVersion: now.ResourceVersion}}
	stream, err := watching.Watch(t.Context(), &corev1.PodList{}, since)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range stream.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				w.sees(pod, event.Type != watch.Deleted)
			}
		}
	}()
	return w, func() { stream.Stop(); <-done }
}

// What runs at home goes to the provider and comes back. Nothing is rolled out, and what does not work leaves the pod as it was.
func TestPodMoves(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	home := lubeck.WorkerNames(t)[0]
	atHamburg := v1alpha1.MoveDestination{Peer: "hamburg"}
	away := v1alpha1.VirtualNodeName("hamburg")

	lubeck.MustCreate(t, framework.NewDeployment(ns, "web", 2, draining(framework.NewEchoPodSpec())))
	lubeck.MustCreate(t, &corev1.Pod{ObjectMeta: framework.NewShellPod(ns, "lone", "").ObjectMeta, Spec: framework.NewShellPodSpec(framework.RunForever)})
	ready := lubeck.AwaitReadyPods(t, ns, "web", 2)
	lone := lubeck.AwaitReadyPods(t, ns, "lone", 1)[0]

	t.Run("of a Deployment", func(t *testing.T) {
		before := rollout(t, lubeck, ns, "web")
		w, stop := watchReady(t, lubeck, ns, "web")
		moved := hasMoved(t, lubeck, &ready[0], atHamburg, away)
		framework.ExpectSamePod(t, moved, hamburg.MustGetRemotePod(t, moved))
		back := hasMoved(t, lubeck, moved, v1alpha1.MoveDestination{Node: home}, home)
		stop()
		if w.least != 2 || w.most > 3 {
			t.Errorf("between %d and %d pods were Ready, want 2 or 3", w.least, w.most)
		}
		if after := rollout(t, lubeck, ns, "web"); after != before {
			t.Errorf("the Deployment was %s, and is %s", before, after)
		}
		if pods := lubeck.AwaitReadyPods(t, ns, "web", 2); !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == ready[1].UID }) ||
			back.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "" || back.Annotations[corev1.PodDeletionCost] != "" {
			t.Errorf("the other pod was replaced, or the moved one is not like it: %s, %v", framework.Summarize(pods), back.ObjectMeta)
		}
		lubeck.AwaitDescription(t, ns, "pod/"+back.Name, v1alpha1.ReasonMoved)
	})
	t.Run("without an owner", func(t *testing.T) {
		debug(t, lubeck, &lone)
		moved := hasMoved(t, lubeck, &lone, atHamburg, away)
		expectNoDebugger(t, moved)
		back := hasMoved(t, lubeck, moved, v1alpha1.MoveDestination{Node: home}, home)
		if len(back.OwnerReferences) > 0 || back.Labels["app"] != "lone" {
			t.Errorf("it is now %v", back.ObjectMeta)
		}
		lone = *back
	})
	t.Run("not if the copy cannot start", func(t *testing.T) {
		pod := lubeck.AwaitReadyPods(t, ns, "web", 2)[0]
		stuck := framework.NewDeployment(ns, "stuck", 1, draining(framework.NewEchoPodSpec()))
		stuck.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: home}
		lubeck.MustCreate(t, stuck)
		held := lubeck.AwaitReadyPods(t, ns, "stuck", 1)[0]
		// Its template keeps the copy off the virtual node.
		failed := lubeck.AwaitMove(t, lubeck.CreatePodMove(t, &held, atHamburg, 5*time.Second), v1alpha1.MoveFailed, v1alpha1.ReasonDeadlineExceeded)
		lubeck.ExpectNotMoved(t, &held, failed)
		gone := lubeck.AwaitMove(t, lubeck.CreatePodMove(t, &pod, v1alpha1.MoveDestination{Node: "nowhere"}, time.Minute), v1alpha1.MoveFailed, v1alpha1.ReasonNodeNotFound)
		lubeck.ExpectNotMoved(t, &pod, gone)
	})
	t.Run("not if its PodMove is deleted", func(t *testing.T) {
		held := lubeck.AwaitReadyPods(t, ns, "stuck", 1)[0]
		move := lubeck.CreatePodMove(t, &held, atHamburg, time.Minute)
		framework.Eventually(t, "there is a copy", func(ctx context.Context) error {
			err := lubeck.Get(ctx, client.ObjectKeyFromObject(move), move)
			if err == nil && move.Status.Copy == nil {
				err = fmt.Errorf("there is none: %+v", move.Status)
			}
			return err
		})
		if err := lubeck.Delete(ctx, move.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the PodMove is gone", func(ctx context.Context) error { return lubeck.CheckGone(ctx, move.DeepCopy()) })
		lubeck.ExpectNotMoved(t, &held, move)
	})
	t.Run("not for who may not delete or create pods", func(t *testing.T) { refusesMoves(t, lubeck, &lone) })
}

// While requests come a hundred times a second, both pods of a Deployment go to a provider, one of them on to another provider, and all
// come home. No request is lost, no fewer pods are Ready than are wanted, and at most one more.
func TestMoveUnderLoad(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	home := lubeck.WorkerNames(t)
	service := lubeck.CreateService(t, ns, "web", map[string]string{"app": "web"})
	lubeck.MustCreate(t, framework.NewDeployment(ns, "web", 2, draining(framework.NewEchoPodSpec())))
	lubeck.MustCreate(t, framework.NewShellPod(ns, "guests", fmt.Sprintf(requestLoop, service.Spec.ClusterIP)))
	lubeck.AwaitReadyPods(t, ns, "web", 2)
	lubeck.AwaitReadyPods(t, ns, "guests", 1)
	isAnswered(ctx, t, lubeck, ns)
	before := rollout(t, lubeck, ns, "web")
	w, stop := watchReady(t, lubeck, ns, "web")

	lubeck.AwaitOpen(t, hamburg) // a move to a node that is not Ready fails at once, and a busy machine has links time out
	out, err := lubeck.Hanse(ctx, "move", "-n", ns, "deployment/web", "--to", "hamburg")
	if err != nil {
		t.Fatal(err, out)
	}
	t.Log(out)
	away := lubeck.AwaitReadyPods(t, ns, "web", 2)
	for i := range away {
		if away[i].Spec.NodeName != v1alpha1.VirtualNodeName("hamburg") {
			t.Fatalf("not all pods are at hamburg: %s", framework.Summarize(away))
		}
	}
	isAnswered(ctx, t, lubeck, ns) // by hamburg alone
	further := hasMoved(t, lubeck, &away[0], v1alpha1.MoveDestination{Peer: "bremen"}, v1alpha1.VirtualNodeName("bremen"))
	isAnswered(ctx, t, lubeck, ns)
	hasMoved(t, lubeck, further, v1alpha1.MoveDestination{Node: home[0]}, home[0])
	hasMoved(t, lubeck, &away[1], v1alpha1.MoveDestination{Node: home[1]}, home[1])
	isAnswered(ctx, t, lubeck, ns)
	stop()
	if w.least != 2 || w.most > 3 {
		t.Errorf("between %d and %d pods were Ready, want 2 or 3", w.least, w.most)
	}
	if after := rollout(t, lubeck, ns, "web"); after != before {
		t.Errorf("the Deployment was %s, and is %s", before, after)
	}
}

// requestLoop asks about a hundred times a second from when it is answered first, and says after every hundred requests how many
// were answered and how many were not.
const requestLoop = `trap 'exit 0' TERM
ok=0 lost=0
ask() { timeout 30 wget -q -O /dev/null http://%s/; }
until ask; do sleep 0.1; done
while sleep 0.007; do
  if ask; then ok=$((ok+1)); else lost=$((lost+1)); echo "lost $(date +%%T)"; fi
  [ $(((ok+lost) %% 100)) != 0 ] || echo "answered $ok, lost $lost"
done`

// isAnswered waits until some hundred further requests were made, and checks that none of all was lost.
func isAnswered(ctx context.Context, t *testing.T, c *framework.Cluster, ns string) {
	t.Helper()
	read := func(ctx context.Context) []string {
		out, err := c.Kubectl(ctx, "logs", "-n", ns, "guests")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(out), "\n")
	}
	first := len(read(ctx))
	framework.Eventually(t, "further requests are answered", func(ctx context.Context) error {
		if now := len(read(ctx)); now < first+3 {
			return fmt.Errorf("%d lines", now)
		}
		return nil
	})
	lines := read(ctx)
	t.Log(lines[len(lines)-1])
	if !strings.HasSuffix(lines[len(lines)-1], "lost 0") {
		t.Errorf("requests were lost: %s", strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "answered") }), ", "))
	}
}

// draining returns the spec with a preStop hook: the pod serves on after its deletion, for longer than a machine with a load of 20 takes to
// remove its endpoint in each cluster.
func draining(spec corev1.PodSpec) corev1.PodSpec {
	grace := int64(30)
	spec.TerminationGracePeriodSeconds = &grace
	// A machine that is busy with other stories answers late, and that is no reason to count a pod out.
	spec.Containers[0].ReadinessProbe.TimeoutSeconds, spec.Containers[0].ReadinessProbe.FailureThreshold = 5, 6
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 15}}}
	return spec
}

// rollout is what changes with each rollout.
func rollout(t *testing.T, c *framework.Cluster, ns, name string) string {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, d); err != nil {
		t.Fatal(err)
	}
	sets := &appsv1.ReplicaSetList{}
	if err := c.List(t.Context(), sets, client.InNamespace(ns), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("generation %d, revision %s, collisions %v, %d ReplicaSets, generation %d", d.Generation,
		d.Annotations["deployment.kubernetes.io/revision"], d.Status.CollisionCount, len(sets.Items), sets.Items[0].Generation)
}

// refusesMoves shows that a PodMove gives nobody more rights than they have.
func refusesMoves(t *testing.T, c *framework.Cluster, pod *corev1.Pod) {
	t.Helper()
	ns := pod.Namespace
	for user, rules := range map[string][]rbacv1.PolicyRule{
		"may-not-create": {{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "delete"}}},
		"may-not-delete": {{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "create"}}},
	} {
		user, who := user+"-"+ns, framework.ObjectMeta(user)
		who.Namespace = ns
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Domain}, Resources: []string{"podmoves"}, Verbs: []string{"create"}})
		c.MustCreate(t, &rbacv1.Role{ObjectMeta: who, Rules: rules})
		c.MustCreate(t, &rbacv1.RoleBinding{
			ObjectMeta: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: who.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		})
		config := rest.CopyConfig(c.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		theirs, err := client.New(config, client.Options{Scheme: c.Scheme(), Mapper: c.RESTMapper()})
		if err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, user+" is refused", func(ctx context.Context) error {
			err := theirs.Create(ctx, framework.NewPodMove(pod, v1alpha1.MoveDestination{Peer: "hamburg"}, time.Minute))
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only who may") {
				return fmt.Errorf("the answer is %w", err)
			}
			return nil
		})
	}
}
