package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
)

func statefulSet(ns, app string, replicas int32, spec corev1.PodSpec) *appsv1.StatefulSet {
	labels := map[string]string{"app": app}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: app, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// isSteered waits until the pod was moved by Steer, and returns the one that its owner has made in its place.
func (c *cluster) isSteered(t *testing.T, wanted *v1alpha1.PodMove, node string) *corev1.Pod {
	t.Helper()
	done := c.awaitMove(t, wanted, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
	now, err := c.pod(t.Context(), done.Namespace, done.Status.Copy.Name)
	if err != nil {
		t.Fatal(err)
	}
	var actions []v1alpha1.MoveAction
	for _, step := range done.Status.Steps {
		actions = append(actions, step.Action)
	}
	t.Logf("%s is in the place of %s after %s: %v", now.Name, done.Spec.Pod.Name, podReadySince(now).Sub(done.CreationTimestamp.Time), actions)
	if !slices.Equal(actions, []v1alpha1.MoveAction{v1alpha1.MoveEvicted, v1alpha1.MoveSteered}) || done.Status.Method != v1alpha1.MoveSteer || done.Status.GateUntil != nil {
		t.Errorf("it was moved by %s: %+v", done.Status.Method, done.Status)
	}
	if now.UID != done.Status.Copy.UID || now.UID == done.Spec.Pod.UID || now.Spec.NodeName != node || len(now.Spec.SchedulingGates) > 0 {
		t.Errorf("in its place is %s with gates %v", summary([]corev1.Pod{*now}), now.Spec.SchedulingGates)
	}
	return now
}

func podReadySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// What cannot run twice is evicted, and what its owner makes in its place goes to the destination: under the same name for a StatefulSet,
// as a retry of a Job, and where a quota has no room for two. One move after the other, and no other pod is touched. An ordinal that somebody
// else's finalizer holds has no successor before that is gone, and the PodMove says so.
func TestPodsAreSteered(t *testing.T) {
	ctx := shared(t)
	ns, full := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote), lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	home, away := lubeck.workers(t)[0], v1alpha1.VirtualNodeName("hamburg")
	atHamburg := v1alpha1.MoveDestination{Peer: "hamburg"}

	lubeck.create(t, statefulSet(ns, "db", 2, shellSpec(forever)))
	work := shellSpec(strings.Replace(forever, "exit 0", "exit 1", 1)) // a Job whose pod ends well when it is evicted may be complete
	work.RestartPolicy = corev1.RestartPolicyNever
	lubeck.create(t, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "work"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "work"}}, Spec: work}},
	})
	once := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "once"},
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "once"}}, Spec: work}},
	}
	lubeck.create(t, once)
	lubeck.create(t, statefulSet(ns, "kept", 1, shellSpec(forever)))
	lubeck.create(t, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kept"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}}},
	})
	lubeck.create(t, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: full, Name: "one"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	})
	lubeck.create(t, deployment(full, "web", 1, shellSpec(forever)))
	lubeck.create(t, deployment(ns, "fast", 3, shellSpec(forever)))
	db := lubeck.awaitReadyPods(t, ns, "db", 2)
	slices.SortFunc(db, func(a, b corev1.Pod) int { return len(a.Name) - len(b.Name) + int(a.Name[3]) - int(b.Name[3]) })
	job := lubeck.awaitReadyPods(t, ns, "work", 1)[0]
	last := lubeck.awaitReadyPods(t, ns, "once", 1)[0]
	kept := lubeck.awaitReadyPods(t, ns, "kept", 1)[0]
	web, fast := lubeck.awaitReadyPods(t, full, "web", 1)[0], lubeck.awaitReadyPods(t, ns, "fast", 3)
	lubeck.awaitsQuotaOf(ctx, t, full)

	lubeck.hold(t, db[0])

	moves := map[string]*v1alpha1.PodMove{}
	for _, pod := range []*corev1.Pod{&db[0], &db[1], &job, &web, &fast[0], &fast[1], &fast[2]} {
		wanted := podMoveOf(pod, atHamburg, waitTimeout)
		if pod.Labels["app"] == "fast" {
			wanted.Spec.Method = v1alpha1.MoveSteer
		}
		lubeck.create(t, wanted)
		moves[pod.Name] = wanted
	}
	lubeck.isUntouched(t, &last, lubeck.awaitMove(t, lubeck.moves(t, &last, atHamburg, time.Minute), v1alpha1.MoveFailed, v1alpha1.ReasonUnsupportedOwner))
	lubeck.awaitsBudgetOf(ctx, t, ns, "kept")
	lubeck.isUntouched(t, &kept, lubeck.awaitMove(t, lubeck.moves(t, &kept, atHamburg, time.Minute), v1alpha1.MoveFailed, v1alpha1.ReasonEvictionBlocked))

	lubeck.saysHeld(t, moves[db[0].Name])
	lubeck.release(t, db[0])
	for i := range db {
		moved := lubeck.isSteered(t, moves[db[i].Name], away)
		if moved.Name != db[i].Name {
			t.Errorf("%s is now %s", db[i].Name, moved.Name)
		}
		expectSamePod(t, moved, hamburg.mustRemotePod(t, moved))
	}
	for i := range fast { // their owner makes another one the moment that one is evicted
		lubeck.isSteered(t, moves[fast[i].Name], away)
	}
	lubeck.isSteered(t, moves[web.Name], away)
	lubeck.isSteered(t, moves[job.Name], away)
	now, err := lubeck.pod(ctx, ns, db[1].Name)
	if err != nil {
		t.Fatal(err)
	}
	back := lubeck.isSteered(t, lubeck.moves(t, now, v1alpha1.MoveDestination{Node: home}, waitTimeout), home)
	lubeck.describeSays(t, ns, "pod/"+back.Name, v1alpha1.ReasonMoved)
}

// saysHeld waits until the PodMove says by what its original is held, which is yet there.
func (c *cluster) saysHeld(t *testing.T, move *v1alpha1.PodMove) {
	t.Helper()
	eventually(t, "the PodMove of "+move.Spec.Pod.Name+" says what holds it", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(move), move)
		complete := meta.FindStatusCondition(move.Status.Conditions, v1alpha1.ConditionComplete)
		if err == nil && (complete == nil || !strings.Contains(complete.Message, "held by finalizers: "+heldBy)) {
			err = fmt.Errorf("it is %s: %+v", move.Status.Phase, complete)
		}
		return err
	})
	now, err := c.pod(t.Context(), move.Namespace, move.Spec.Pod.Name)
	if err != nil || now.UID != move.Spec.Pod.UID || now.DeletionTimestamp == nil {
		t.Errorf("the original is %v (%v)", now.ObjectMeta, err)
	}
}

// awaitsQuotaOf waits until the quota counts the pod.
func (c *cluster) awaitsQuotaOf(ctx context.Context, t *testing.T, ns string) {
	t.Helper()
	eventually(t, "the quota is used up", func(context.Context) error {
		quota := &corev1.ResourceQuota{}
		err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "one"}, quota)
		if used := quota.Status.Used[corev1.ResourcePods]; err == nil && used.Value() != 1 {
			err = fmt.Errorf("%s is used", used.String())
		}
		return err
	})
}

func (c *cluster) awaitsBudgetOf(ctx context.Context, t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, "the budget counts its pod", func(context.Context) error {
		budget := &policyv1.PodDisruptionBudget{}
		err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, budget)
		if err == nil && budget.Status.CurrentHealthy != 1 {
			err = fmt.Errorf("%+v", budget.Status)
		}
		return err
	})
}

// exclusiveVolume has the pods mount a volume that one node can use at a time: any, or the one that is named.
func (c *cluster) exclusiveVolume(t *testing.T, ns string, spec *corev1.PodSpec, name string, node ...string) {
	t.Helper()
	claim := claimTemplate("")
	claim.Namespace, claim.Name, claim.Spec.VolumeName = ns, name, name+"-"+ns
	path := "/tmp/" + claim.Spec.VolumeName // the nodes share the machine's files
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	volume := &corev1.PersistentVolume{
		ObjectMeta: named(claim.Spec.VolumeName),
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
	c.create(t, volume)
	c.create(t, &claim)
	mount(spec, name)
}

// A volume that one node can use at a time goes with its pod to another node: first the one lets go of it, then the other takes it. A pod
// that nobody makes again keeps its name. A volume that one node alone can use keeps its pod there.
func TestExclusiveVolumeIsSteered(t *testing.T) {
	connected(t)
	ns := lubeck.namespace(t)
	nodes := lubeck.workers(t)
	other := func(pod corev1.Pod) string {
		if pod.Spec.NodeName == nodes[0] {
			return nodes[1]
		}
		return nodes[0]
	}
	owner, lone, tied := deployment(ns, "db", 1, shellSpec(forever)), shellPod(ns, "lone", forever), statefulSet(ns, "tied", 1, shellSpec(forever))
	lubeck.exclusiveVolume(t, ns, &owner.Spec.Template.Spec, "data")
	lubeck.exclusiveVolume(t, ns, &lone.Spec, "of-lone")
	lubeck.exclusiveVolume(t, ns, &tied.Spec.Template.Spec, "of-tied", nodes[0])
	lubeck.create(t, tied)
	lubeck.create(t, owner)
	lubeck.create(t, lone)
	pod, alone := lubeck.awaitReadyPods(t, ns, "db", 1)[0], lubeck.awaitReadyPods(t, ns, "lone", 1)[0]
	to, toOther := other(pod), other(alone)
	keepsName := lubeck.moves(t, &alone, v1alpha1.MoveDestination{Node: toOther}, waitTimeout)
	surge := podMoveOf(&pod, v1alpha1.MoveDestination{Node: to}, waitTimeout)
	surge.Spec.Method = v1alpha1.MoveSurge
	lubeck.create(t, surge)
	lubeck.isUntouched(t, &pod, lubeck.awaitMove(t, surge, v1alpha1.MoveFailed, v1alpha1.ReasonVolumeStays))
	held := lubeck.awaitReadyPods(t, ns, "tied", 1)[0]
	stays := lubeck.moves(t, &held, v1alpha1.MoveDestination{Node: nodes[1]}, waitTimeout)
	lubeck.isUntouched(t, &held, lubeck.awaitMove(t, stays, v1alpha1.MoveFailed, v1alpha1.ReasonVolumeStays))
	lubeck.isSteered(t, lubeck.moves(t, &pod, v1alpha1.MoveDestination{Node: to}, waitTimeout), to)
	lubeck.keepsName(t, keepsName, toOther)
}

// Without a manager, the API server puts the gate on for as long as the last manager has said, and no longer. What is gated then waits for
// a manager, which lifts the gate of what no move awaits. Nobody else has to do anything.
func TestGatesEndWithoutTheirManager(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.namespace(t)
	lubeck.create(t, statefulSet(ns, "db", 1, shellSpec(forever)))
	lubeck.create(t, deployment(ns, "web", 1, shellSpec(forever)))
	lubeck.create(t, deployment(ns, "bystander", 1, shellSpec(forever)))
	lubeck.pause(t, "manager")
	db, web := lubeck.awaitReadyPods(t, ns, "db", 1)[0], lubeck.awaitReadyPods(t, ns, "web", 1)[0]
	short, long := lubeck.abandons(t, &db, 10*time.Second), lubeck.abandons(t, &web, move.GateFor)

	for _, pod := range []*corev1.Pod{&db, &web} {
		lubeck.isReplacedGated(t, pod)
	}
	bystander := lubeck.awaitReadyPods(t, ns, "bystander", 1)[0]
	if err := lubeck.ends(ctx, &bystander, nil); err != nil {
		t.Fatal(err)
	}
	if now := lubeck.awaitReadyPods(t, ns, "bystander", 1)[0]; now.UID == bystander.UID { // gated, it would not be Ready
		t.Error("the pod of somebody else was not replaced")
	}
	eventually(t, "what is made later is not", func(ctx context.Context) error {
		pod, err := lubeck.pod(ctx, ns, "db-0")
		if err == nil && !podReady(pod) {
			err = fmt.Errorf("it is %s", summary([]corev1.Pod{*pod}))
			if move.IsGated(pod) {
				err = lubeck.ends(ctx, pod, err)
			}
		}
		return err
	})
	if pods, err := lubeck.pods(ctx, ns, "web"); err != nil || len(pods) != 1 || !move.IsGated(&pods[0]) {
		t.Errorf("the other one is %s (%v)", summary(pods), err)
	}
	lubeck.scale(ctx, t, "manager", "1")
	lubeck.awaitMove(t, short, v1alpha1.MoveFailed, v1alpha1.ReasonDeadlineExceeded)
	lubeck.awaitMove(t, long, v1alpha1.MoveFailed, v1alpha1.ReasonDeadlineExceeded)
	if pod := lubeck.awaitReadyPods(t, ns, "web", 1)[0]; len(pod.Spec.SchedulingGates) > 0 {
		t.Errorf("it runs with %v", pod.Spec.SchedulingGates)
	}
}

// isReplacedGated ends the pod, and what its owner makes in its place, until that is gated: the API server may not have known of the
// PodMove before.
func (c *cluster) isReplacedGated(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "what is made in the place of "+pod.Name+" is gated", func(ctx context.Context) error {
		pods, err := c.pods(ctx, pod.Namespace, pod.Labels["app"])
		if err == nil && (len(pods) != 1 || !move.IsGated(&pods[0])) {
			err = fmt.Errorf("it is not: %s", summary(pods))
			for i := range pods {
				err = c.ends(ctx, &pods[i], err)
			}
		}
		return err
	})
}

// ends deletes the pod, so that its owner makes another one, and returns why.
func (c *cluster) ends(ctx context.Context, pod *corev1.Pod, why error) error {
	if err := c.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		return err
	}
	return why
}

// abandons has a PodMove be as a manager leaves it that dies right before it evicts the pod.
func (c *cluster) abandons(t *testing.T, pod *corev1.Pod, gated time.Duration) *v1alpha1.PodMove {
	t.Helper()
	made := c.moves(t, pod, v1alpha1.MoveDestination{Node: pod.Spec.NodeName}, 5*time.Second)
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
