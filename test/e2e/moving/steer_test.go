// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/move"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// isSteered waits until the pod was moved by Steer, and returns the one that its owner has made in its place.
func isSteered(t *testing.T, c *framework.Cluster, wanted *v1alpha1.PodMove, node string) *corev1.Pod {
	t.Helper()
	done := c.AwaitMove(t, wanted, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
	now, err := c.GetPod(t.Context(), done.Namespace, done.Status.Copy.Name)
	if err != nil {
		t.Fatal(err)
	}
	var actions []v1alpha1.MoveAction
	for _, step := range done.Status.Steps {
		actions = append(actions, step.Action)
	}
	t.Logf("%s is in the place of %s after %s: %v", now.Name, done.Spec.Pod.Name, framework.PodReadySince(now).Sub(done.CreationTimestamp.Time), actions)
	if !slices.Equal(actions, []v1alpha1.MoveAction{v1alpha1.MoveEvicted, v1alpha1.MoveSteered}) || done.Status.Method != v1alpha1.MoveSteer || done.Status.GateUntil != nil {
		t.Errorf("it was moved by %s: %+v", done.Status.Method, done.Status)
	}
	if now.UID != done.Status.Copy.UID || now.UID == done.Spec.Pod.UID || now.Spec.NodeName != node || len(now.Spec.SchedulingGates) > 0 {
		t.Errorf("in its place is %s with gates %v", framework.Summarize([]corev1.Pod{*now}), now.Spec.SchedulingGates)
	}
	return now
}

// What cannot run twice is evicted, and what its owner makes in its place goes to the destination: under the same name for a StatefulSet,
// as a retry of a Job, and where a quota has no room for two. One move after the other, and no other pod is touched. An ordinal that somebody
// else's finalizer holds has no successor before that is gone, and the PodMove says so.
func TestPodsAreSteered(t *testing.T) {
	ctx := framework.Begin(t)
	ns, full := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote), lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	home, away := lubeck.WorkerNames(t)[0], v1alpha1.VirtualNodeName("hamburg")
	atHamburg := v1alpha1.MoveDestination{Peer: "hamburg"}

	lubeck.MustCreate(t, framework.NewStatefulSet(ns, "db", 2, framework.NewShellPodSpec(framework.RunForever)))
	work := framework.NewShellPodSpec(strings.Replace(framework.RunForever, "exit 0", "exit 1", 1)) // a Job whose pod ends well when it is evicted may be complete
	work.RestartPolicy = corev1.RestartPolicyNever
	lubeck.MustCreate(t, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "work"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "work"}}, Spec: work}},
	})
	once := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "once"},
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "once"}}, Spec: work}},
	}
	lubeck.MustCreate(t, once)
	lubeck.MustCreate(t, framework.NewStatefulSet(ns, "kept", 1, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.MustCreate(t, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kept"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}}},
	})
	lubeck.MustCreate(t, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: full, Name: "one"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	})
	lubeck.MustCreate(t, framework.NewDeployment(full, "web", 1, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.MustCreate(t, framework.NewDeployment(ns, "fast", 3, framework.NewShellPodSpec(framework.RunForever)))
	db := lubeck.AwaitReadyPods(t, ns, "db", 2)
	slices.SortFunc(db, func(a, b corev1.Pod) int { return len(a.Name) - len(b.Name) + int(a.Name[3]) - int(b.Name[3]) })
	job := lubeck.AwaitReadyPods(t, ns, "work", 1)[0]
	last := lubeck.AwaitReadyPods(t, ns, "once", 1)[0]
	kept := lubeck.AwaitReadyPods(t, ns, "kept", 1)[0]
	web, fast := lubeck.AwaitReadyPods(t, full, "web", 1)[0], lubeck.AwaitReadyPods(t, ns, "fast", 3)
	awaitsQuotaOf(ctx, t, lubeck, full)

	hold(t, lubeck, db[0])

	moves := map[string]*v1alpha1.PodMove{}
	for _, pod := range []*corev1.Pod{&db[0], &db[1], &job, &web, &fast[0], &fast[1], &fast[2]} {
		wanted := framework.NewPodMove(pod, atHamburg, framework.WaitTimeout)
		if pod.Labels["app"] == "fast" {
			wanted.Spec.Method = v1alpha1.MoveSteer
		}
		lubeck.MustCreate(t, wanted)
		moves[pod.Name] = wanted
	}
	lubeck.ExpectNotMoved(t, &last, lubeck.AwaitMove(t, lubeck.CreatePodMove(t, &last, atHamburg, time.Minute), v1alpha1.MoveFailed, v1alpha1.ReasonUnsupportedOwner))
	awaitsBudgetOf(ctx, t, lubeck, ns, "kept")
	lubeck.ExpectNotMoved(t, &kept, lubeck.AwaitMove(t, lubeck.CreatePodMove(t, &kept, atHamburg, time.Minute), v1alpha1.MoveFailed, v1alpha1.ReasonEvictionBlocked))

	saysHeld(t, lubeck, moves[db[0].Name])
	release(t, lubeck, db[0])
	for i := range db {
		moved := isSteered(t, lubeck, moves[db[i].Name], away)
		if moved.Name != db[i].Name {
			t.Errorf("%s is now %s", db[i].Name, moved.Name)
		}
		framework.ExpectSamePod(t, moved, hamburg.MustGetRemotePod(t, moved))
	}
	for i := range fast { // their owner makes another one the moment that one is evicted
		isSteered(t, lubeck, moves[fast[i].Name], away)
	}
	isSteered(t, lubeck, moves[web.Name], away)
	isSteered(t, lubeck, moves[job.Name], away)
	now, err := lubeck.GetPod(ctx, ns, db[1].Name)
	if err != nil {
		t.Fatal(err)
	}
	back := isSteered(t, lubeck, lubeck.CreatePodMove(t, now, v1alpha1.MoveDestination{Node: home}, framework.WaitTimeout), home)
	lubeck.AwaitDescription(t, ns, "pod/"+back.Name, v1alpha1.ReasonMoved)
}

// saysHeld waits until the PodMove says by what its original is held, which is yet there.
func saysHeld(t *testing.T, c *framework.Cluster, move *v1alpha1.PodMove) {
	t.Helper()
	framework.Eventually(t, "the PodMove of "+move.Spec.Pod.Name+" says what holds it", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(move), move)
		complete := meta.FindStatusCondition(move.Status.Conditions, v1alpha1.ConditionComplete)
		if err == nil && (complete == nil || !strings.Contains(complete.Message, "held by finalizers: "+heldBy)) {
			err = fmt.Errorf("it is %s: %+v", move.Status.Phase, complete)
		}
		return err
	})
	now, err := c.GetPod(t.Context(), move.Namespace, move.Spec.Pod.Name)
	if err != nil || now.UID != move.Spec.Pod.UID || now.DeletionTimestamp == nil {
		t.Errorf("the original is %v (%v)", now.ObjectMeta, err)
	}
}

// awaitsQuotaOf waits until the quota counts the pod.
func awaitsQuotaOf(ctx context.Context, t *testing.T, c *framework.Cluster, ns string) {
	t.Helper()
	framework.Eventually(t, "the quota is used up", func(context.Context) error {
		quota := &corev1.ResourceQuota{}
		err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "one"}, quota)
		if used := quota.Status.Used[corev1.ResourcePods]; err == nil && used.Value() != 1 {
			err = fmt.Errorf("%s is used", used.String())
		}
		return err
	})
}

func awaitsBudgetOf(ctx context.Context, t *testing.T, c *framework.Cluster, ns, name string) {
	t.Helper()
	framework.Eventually(t, "the budget counts its pod", func(context.Context) error {
		budget := &policyv1.PodDisruptionBudget{}
		err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, budget)
		if err == nil && budget.Status.CurrentHealthy != 1 {
			err = fmt.Errorf("%+v", budget.Status)
		}
		return err
	})
}

// exclusiveVolume has the pods mount a volume that one node can use at a time: any, or the one that is named.
func exclusiveVolume(t *testing.T, ns string, spec *corev1.PodSpec, name string, node ...string) {
	t.Helper()
	claim := framework.NewClaimTemplate("")
	claim.Namespace, claim.Name, claim.Spec.VolumeName = ns, name, name+"-"+ns
	path := "/tmp/" + claim.Spec.VolumeName // the nodes share the machine's files
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	volume := &corev1.PersistentVolume{
		ObjectMeta: framework.ObjectMeta(claim.Spec.VolumeName),
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: "",
			ClaimRef:               &corev1.ObjectReference{Namespace: ns, Name: claim.Name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: ptr.To(corev1.HostPathDirectoryOrCreate)}},
		},
	}
	if len(node) > 0 {
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: node}},
		}}}}
	}
	lubeck.MustCreate(t, volume)
	lubeck.MustCreate(t, &claim)
	framework.MountClaim(spec, name)
}

// A volume that one node can use at a time goes with its pod to another node: first the one lets go of it, then the other takes it. A pod
// that nobody makes again keeps its name. A volume that one node alone can use keeps its pod there.
func TestExclusiveVolumeIsSteered(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateNamespace(t)
	nodes := lubeck.WorkerNames(t)
	other := func(pod corev1.Pod) string {
		if pod.Spec.NodeName == nodes[0] {
			return nodes[1]
		}
		return nodes[0]
	}
	owner, lone, tied := framework.NewDeployment(ns, "db", 1, framework.NewShellPodSpec(framework.RunForever)), framework.NewShellPod(ns, "lone", framework.RunForever), framework.NewStatefulSet(ns, "tied", 1, framework.NewShellPodSpec(framework.RunForever))
	exclusiveVolume(t, ns, &owner.Spec.Template.Spec, "data")
	exclusiveVolume(t, ns, &lone.Spec, "of-lone")
	exclusiveVolume(t, ns, &tied.Spec.Template.Spec, "of-tied", nodes[0])
	lubeck.MustCreate(t, tied)
	lubeck.MustCreate(t, owner)
	lubeck.MustCreate(t, lone)
	pod, alone := lubeck.AwaitReadyPods(t, ns, "db", 1)[0], lubeck.AwaitReadyPods(t, ns, "lone", 1)[0]
	to, toOther := other(pod), other(alone)
	keepsName := lubeck.CreatePodMove(t, &alone, v1alpha1.MoveDestination{Node: toOther}, framework.WaitTimeout)
	surge := framework.NewPodMove(&pod, v1alpha1.MoveDestination{Node: to}, framework.WaitTimeout)
	surge.Spec.Method = v1alpha1.MoveSurge
	lubeck.MustCreate(t, surge)
	lubeck.ExpectNotMoved(t, &pod, lubeck.AwaitMove(t, surge, v1alpha1.MoveFailed, v1alpha1.ReasonVolumeStays))
	held := lubeck.AwaitReadyPods(t, ns, "tied", 1)[0]
	stays := lubeck.CreatePodMove(t, &held, v1alpha1.MoveDestination{Node: nodes[1]}, framework.WaitTimeout)
	lubeck.ExpectNotMoved(t, &held, lubeck.AwaitMove(t, stays, v1alpha1.MoveFailed, v1alpha1.ReasonVolumeStays))
	isSteered(t, lubeck, lubeck.CreatePodMove(t, &pod, v1alpha1.MoveDestination{Node: to}, framework.WaitTimeout), to)
	lubeck.AwaitMovedInPlace(t, keepsName, toOther)
}

// Without a manager, the API server puts the gate on for as long as the last manager has said, and no longer. What is gated then waits for
// a manager, which lifts the gate of what no move awaits. Nobody else has to do anything.
func TestGatesEndWithoutTheirManager(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateNamespace(t)
	lubeck.MustCreate(t, framework.NewStatefulSet(ns, "db", 1, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.MustCreate(t, framework.NewDeployment(ns, "web", 1, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.MustCreate(t, framework.NewDeployment(ns, "bystander", 1, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.PauseHanse(t, "manager")
	db, web := lubeck.AwaitReadyPods(t, ns, "db", 1)[0], lubeck.AwaitReadyPods(t, ns, "web", 1)[0]
	short, long := abandons(t, lubeck, &db, 10*time.Second), abandons(t, lubeck, &web, move.GateFor)

	for _, pod := range []*corev1.Pod{&db, &web} {
		isReplacedGated(t, lubeck, pod)
	}
	bystander := lubeck.AwaitReadyPods(t, ns, "bystander", 1)[0]
	if err := ends(ctx, lubeck, &bystander, nil); err != nil {
		t.Fatal(err)
	}
	if now := lubeck.AwaitReadyPods(t, ns, "bystander", 1)[0]; now.UID == bystander.UID { // gated, it would not be Ready
		t.Error("the pod of somebody else was not replaced")
	}
	framework.Eventually(t, "what is made later is not", func(ctx context.Context) error {
		pod, err := lubeck.GetPod(ctx, ns, "db-0")
		if err == nil && !framework.IsPodReady(pod) {
			err = fmt.Errorf("it is %s", framework.Summarize([]corev1.Pod{*pod}))
			if move.IsGated(pod) {
				err = ends(ctx, lubeck, pod, err)
			}
		}
		return err
	})
	if pods, err := lubeck.GetPods(ctx, ns, "web"); err != nil || len(pods) != 1 || !move.IsGated(&pods[0]) {
		t.Errorf("the other one is %s (%v)", framework.Summarize(pods), err)
	}
	lubeck.ScaleHanse(ctx, t, "manager", "1")
	lubeck.AwaitMove(t, short, v1alpha1.MoveFailed, v1alpha1.ReasonDeadlineExceeded)
	lubeck.AwaitMove(t, long, v1alpha1.MoveFailed, v1alpha1.ReasonDeadlineExceeded)
	if pod := lubeck.AwaitReadyPods(t, ns, "web", 1)[0]; len(pod.Spec.SchedulingGates) > 0 {
		t.Errorf("it runs with %v", pod.Spec.SchedulingGates)
	}
}

// isReplacedGated ends the pod, and what its owner makes in its place, until that is gated: the API server may not have known of the
// PodMove before.
func isReplacedGated(t *testing.T, c *framework.Cluster, pod *corev1.Pod) {
	t.Helper()
	framework.Eventually(t, "what is made in the place of "+pod.Name+" is gated", func(ctx context.Context) error {
		pods, err := c.GetPods(ctx, pod.Namespace, pod.Labels["app"])
		if err == nil && (len(pods) != 1 || !move.IsGated(&pods[0])) {
			err = fmt.Errorf("it is not: %s", framework.Summarize(pods))
			for i := range pods {
				err = ends(ctx, c, &pods[i], err)
			}
		}
		return err
	})
}

// ends deletes the pod, so that its owner makes another one, and returns why.
func ends(ctx context.Context, c *framework.Cluster, pod *corev1.Pod, why error) error {
	if err := c.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		return err
	}
	return why
}

// abandons has a PodMove be as a manager leaves it that dies right before it evicts the pod.
func abandons(t *testing.T, c *framework.Cluster, pod *corev1.Pod, gated time.Duration) *v1alpha1.PodMove {
	t.Helper()
	made := c.CreatePodMove(t, pod, v1alpha1.MoveDestination{Node: pod.Spec.NodeName}, 5*time.Second)
	of := pod.OwnerReferences[0]
	made.Status = v1alpha1.PodMoveStatus{
		Phase: v1alpha1.MoveSteering, Method: v1alpha1.MoveSteer, GateUntil: ptr.To(metav1.NewTime(time.Now().Add(gated))),
		Owner:    &v1alpha1.MoveOwner{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Name, UID: of.UID},
		Original: &v1alpha1.MoveParty{Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName},
	}
	if err := c.Status().Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return made
}
