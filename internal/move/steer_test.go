// SPDX-License-Identifier: Apache-2.0

package move

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func gated(p *corev1.Pod) {
	unready(p)
	pending(p)
	unassigned(p)
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/other"}, {Name: v1alpha1.GateMove}}
}

func started(p *corev1.Pod) {
	p.Spec.NodeName, p.Status.Phase, p.Status.Conditions[0].Status = "there", corev1.PodRunning, corev1.ConditionTrue
}

func ungated(p *corev1.Pod) { p.Spec.SchedulingGates = nil }

func sent(p *corev1.Pod) { *p = *Steered(moving(""), p) }

// by is a change of who controls the pod.
func by(kind string, uid types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, UID: uid, Controller: ptr.To(true)}}
	}
}

// successor is what the owner makes in the place of the original.
func successor(change ...func(*corev1.Pod)) corev1.Pod {
	return runningPod("next", append([]func(*corev1.Pod){by("ReplicaSet", "set"), gated}, change...)...)
}

// steering is a move whose original runs.
func steering(phase v1alpha1.MovePhase, change ...func(*Observed)) Observed {
	original := runningPod("original", by("ReplicaSet", "set"))
	seen := Observed{Move: moving(phase), Original: &original, Owner: &Owner{MoveOwner: setOwner}}
	seen.Move.Status.Method = v1alpha1.MoveSteer
	for _, c := range change {
		c(&seen)
	}
	seen.Copy = seen.Replacement()
	return seen
}

func armed(s *Observed) { s.Move.Status.GateUntil = ptr.To(metav1.NewTime(noon.Add(GateFor))) }
func going(s *Observed) { ending(s.Original) }
func evicted(s *Observed) {
	s.Original = nil
	s.Move.Status.Steps = []v1alpha1.MoveStep{{Action: v1alpha1.MoveEvicted, Time: ago(time.Minute)}}
}

func replaced(change ...func(*corev1.Pod)) func(*Observed) {
	return func(s *Observed) {
		evicted(s)
		s.Owner.Pods = append(s.Owner.Pods, successor(change...))
	}
}

func notedDown(s *Observed) { s.Move.Status.Copy = &v1alpha1.MoveParty{Name: "next", UID: "next"} }

func TestNextOfSteering(t *testing.T) {
	const (
		at, handing, back = v1alpha1.MoveSteering, v1alpha1.MoveHandingOver, v1alpha1.MoveRollingBack
		moving            = v1alpha1.ReasonMoving
	)
	nearlyOver := func(s *Observed) { s.Move.Status.GateUntil = ptr.To(metav1.NewTime(noon.Add(20 * time.Second))) }
	for name, test := range map[string]struct {
		seen   Observed
		want   Do
		reason string
	}{
		"first the next pod is to be gated":        {seen: steering(at), want: Gate, reason: moving},
		"then the original is evicted":             {seen: steering(at, armed), want: Evict, reason: moving},
		"then its successor is waited for":         {seen: steering(at, armed, going), want: Wait, reason: moving},
		"which goes on to be gated":                {seen: steering(at, nearlyOver, evicted), want: Gate, reason: moving},
		"and is sent to the destination":           {seen: steering(at, armed, replaced()), want: Steer, reason: moving},
		"also if it was noted down already":        {seen: steering(at, replaced(), notedDown), want: Steer, reason: moving},
		"a gated sibling of one that runs is none": {seen: steering(at, armed, func(s *Observed) { s.Owner.Pods = []corev1.Pod{successor()} }), want: Evict, reason: moving},
		"its start is waited for":                  {seen: steering(at, replaced(sent), notedDown), want: Wait, reason: moving},
		"and then it has moved":                    {seen: steering(handing, replaced(sent, started), notedDown), want: Succeed, reason: v1alpha1.ReasonMoved},
		"a Job's may be done already":              {seen: steering(handing, replaced(sent, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), notedDown), want: Succeed, reason: v1alpha1.ReasonMoved},
		"it may fail":                              {seen: steering(handing, replaced(sent, failed), notedDown), want: Abort, reason: v1alpha1.ReasonCopyLost},
		"or be deleted":                            {seen: steering(handing, evicted, notedDown), want: Abort, reason: v1alpha1.ReasonCopyLost},
		"or not start in time":                     {seen: steering(handing, replaced(sent), notedDown, late), want: Abort, reason: v1alpha1.ReasonDeadlineExceeded},
		"a deletion is too late then":              {seen: steering(handing, replaced(sent), notedDown, deleted), want: Wait, reason: moving},
		"a deletion before":                        {seen: steering(at, armed, deleted), want: Abort, reason: v1alpha1.ReasonAborted},
		"a deletion with a gated successor":        {seen: steering(at, armed, replaced(), deleted), want: Abort, reason: v1alpha1.ReasonAborted},
		"a rollout":                                {seen: steering(at, armed, busy), want: Abort, reason: v1alpha1.ReasonRolloutUnderWay},
		"an owner that is gone":                    {seen: steering(at, armed, noOwner), want: Abort, reason: v1alpha1.ReasonOwnerLost},
		"no eviction in time":                      {seen: steering(at, late), want: Abort, reason: v1alpha1.ReasonDeadlineExceeded},
		"no successor in time":                     {seen: steering(at, armed, evicted, late), want: Abort, reason: v1alpha1.ReasonDeadlineExceeded},
		"a gated one that comes too late":          {seen: steering(at, armed, replaced(), late), want: Abort, reason: v1alpha1.ReasonDeadlineExceeded},
		"an original that ends by itself":          {seen: steering(at, armed, theOriginal(failed)), want: Abort, reason: v1alpha1.ReasonOriginalLost},
		"a successor without a gate":               {seen: steering(at, armed, replaced(ungated, createdBefore(time.Second))), want: Abort, reason: v1alpha1.ReasonNotGated},
		"nor is one that was Ready before":         {seen: steering(at, armed, replaced(ungated, started, createdBefore(time.Minute), readyFor(time.Minute))), want: Wait, reason: moving},
		"an older sibling is no successor":         {seen: steering(at, armed, replaced(ungated, createdBefore(time.Hour))), want: Wait, reason: moving},
		"somebody lifts the gate":                  {seen: steering(at, replaced(ungated), notedDown), want: Abort, reason: v1alpha1.ReasonNotGated},
		"one that cannot start is evicted":         {seen: steering(back, replaced(sent), notedDown), want: EvictCopy},
		"one that is to be left is not":            {seen: steering(back, replaced(sent), notedDown, leave), want: Fail},
		"nor is one that has started":              {seen: steering(back, replaced(sent, started), notedDown), want: Fail},
		"one that was not sent is let go":          {seen: steering(back, replaced(), notedDown), want: Fail},
		"an original that was not evicted stays":   {seen: steering(back), want: Fail},
	} {
		t.Run(name, func(t *testing.T) {
			got := Next(test.seen, noon)
			if got.Do != test.want || got.Cause.Reason != test.reason {
				t.Errorf("got %s (%s), want %s (%s)", got.Do, got.Cause, test.want, test.reason)
			}
		})
	}
}

func TestGateIsRenewedWhileWaiting(t *testing.T) {
	if diff := cmp.Diff(GateFor-renewBefore, Next(steering(v1alpha1.MoveSteering, armed, evicted), noon).After); diff != "" {
		t.Error(diff)
	}
}

func TestLastWordsSayWhatWasWaitedFor(t *testing.T) {
	seen := steering(v1alpha1.MoveSteering, late)
	seen.Move.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionComplete, Message: "no disruption allowed"}}
	if diff := cmp.Diff("The pod was not sent to its destination in time: no disruption allowed", Next(seen, noon).Cause.Message); diff != "" {
		t.Error(diff)
	}
}

func TestSteeredPodsGoWhereTheyAreSent(t *testing.T) {
	pod := successor(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}}}},
		}}}
	})
	before, m := pod.DeepCopy(), moving("")
	got := Steered(m, &pod)
	want := toNode("there")
	want.NodeSelectorTerms[0].MatchExpressions = before.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions
	if diff := cmp.Diff(want, got.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]corev1.PodSchedulingGate{{Name: "example.org/other"}}, got.Spec.SchedulingGates); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, &pod); diff != "" {
		t.Errorf("the pod was changed: %s", diff)
	}
	if isSteered(m, &pod) || isSteered(m, Ungated(&pod)) || !isSteered(m, got) {
		t.Error("it is not told apart whether a pod was sent")
	}
	m.Spec.Destination = v1alpha1.MoveDestination{NodeSelector: map[string]v1alpha1.LabelValue{"disk": "fast"}}
	if isSteered(m, got) || !isSteered(m, Steered(m, &pod)) {
		t.Error("nor whether it was sent elsewhere")
	}
}

func TestOnlyThePodInThePlaceOfTheOriginalIsAwaited(t *testing.T) {
	for name, test := range map[string]struct {
		kind, original string
		pod            func(*corev1.Pod)
		change         func(*v1alpha1.PodMove)
		want           bool
	}{
		"one of the owner":                {kind: "ReplicaSet", want: true},
		"one of another":                  {kind: "ReplicaSet", pod: by("ReplicaSet", "other")},
		"one of nobody":                   {kind: "ReplicaSet", pod: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		"the ordinal":                     {kind: "StatefulSet", original: "next", want: true},
		"another ordinal":                 {kind: "StatefulSet", original: "next-1"},
		"a Job's":                         {kind: "Job", original: "sum-x7k2q", pod: func(p *corev1.Pod) { p.GenerateName = "sum-" }, want: true},
		"a Job's index":                   {kind: "Job", original: "sum-1-x7k2q", pod: func(p *corev1.Pod) { p.GenerateName = "sum-1-" }, want: true},
		"another index":                   {kind: "Job", original: "sum-10-x7k2q", pod: func(p *corev1.Pod) { p.GenerateName = "sum-1-" }},
		"after another was noted down":    {kind: "ReplicaSet", change: func(m *v1alpha1.PodMove) { m.Status.Copy = &v1alpha1.MoveParty{UID: "other"} }},
		"after it was noted down":         {kind: "ReplicaSet", change: func(m *v1alpha1.PodMove) { m.Status.Copy = &v1alpha1.MoveParty{UID: "next"} }, want: true},
		"after the deadline":              {kind: "ReplicaSet", change: func(m *v1alpha1.PodMove) { m.CreationTimestamp = ago(time.Hour) }},
		"after the deletion of the move":  {kind: "ReplicaSet", change: func(m *v1alpha1.PodMove) { m.DeletionTimestamp = ptr.To(ago(0)) }},
		"after the move has failed":       {kind: "ReplicaSet", change: func(m *v1alpha1.PodMove) { m.Status.Phase = v1alpha1.MoveFailed }},
		"by a move that makes its copies": {kind: "ReplicaSet", change: func(m *v1alpha1.PodMove) { m.Status.Phase = v1alpha1.MoveCopying }},
	} {
		t.Run(name, func(t *testing.T) {
			m := moving(v1alpha1.MoveSteering)
			m.Status.Owner.Kind, m.Spec.Pod.Name = test.kind, test.original
			pod := successor()
			if test.pod != nil {
				test.pod(&pod)
			}
			if test.change != nil {
				test.change(m)
			}
			if got := Awaits(m, &pod, noon); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// What keeps the original in existence is said, with its name, as long as something waits for that.
func TestFinalizersOfOthersAreNamed(t *testing.T) {
	const says = "held by finalizers: example.org/hold, example.org/other"
	ends := func(p *corev1.Pod) {
		ending(p)
		p.Finalizers, p.DeletionGracePeriodSeconds = []string{"example.org/hold", "example.org/other"}, ptr.To[int64](30)
	}
	held := func(p *corev1.Pod) { ends(p); *p.DeletionGracePeriodSeconds = 0 }
	ofStatefulSet := func(s *Observed) { s.Owner.Kind = "StatefulSet" }
	for name, test := range map[string]struct {
		seen Observed
		says bool
	}{
		"a StatefulSet waits for the name":    {steering(v1alpha1.MoveSteering, armed, theOriginal(held), ofStatefulSet), true},
		"but not for them as long as it ends": {steering(v1alpha1.MoveSteering, armed, theOriginal(ends), ofStatefulSet), false},
		"a ReplicaSet does not":               {steering(v1alpha1.MoveSteering, armed, theOriginal(held)), false},
		"a pod that keeps its name":           {recreation(v1alpha1.MoveRecreating, untouched(held)), true},
		"as long as it ends":                  {recreation(v1alpha1.MoveRecreating, untouched(ends)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Next(test.seen, noon); got.Do != Wait || strings.HasSuffix(got.Cause.Message, says) != test.says {
				t.Errorf("got %s: %s", got.Do, got.Cause.Message)
			}
		})
	}
	if got := Next(world(v1alpha1.MoveHandingOver, theOriginal(held), copied(handedOver, adopted, settled)), noon); got.Do != Succeed {
		t.Errorf("a copy that has taken over waits: %s", got.Do)
	}
}

func TestTheFirstOfSeveralIsSteered(t *testing.T) {
	second, first := successor(createdBefore(time.Second)), successor(createdBefore(time.Minute))
	first.Name, first.UID = "first", "first"
	seen := steering(v1alpha1.MoveSteering, evicted, func(s *Observed) { s.Owner.Pods = []corev1.Pod{second, first} })
	if seen.Copy == nil || seen.Copy.Name != "first" {
		t.Errorf("got %v", seen.Copy)
	}
}

func TestBusyStatefulSet(t *testing.T) {
	pod := func(revision string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-2", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}}}
	}
	for name, test := range map[string]struct {
		change func(*appsv1.StatefulSet)
		pod    *corev1.Pod
		busy   bool
	}{
		"nothing goes on":          {pod: pod("new")},
		"the pod is gone":          {},
		"the pod is to be updated": {pod: pod("old"), busy: true},
		"unless it is held back": {change: func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](3)}
		}, pod: pod("old")},
		"it is scaled down": {change: func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](2) }, pod: pod("new"), busy: true},
		"unless it begins to count at 1": {change: func(s *appsv1.StatefulSet) {
			s.Spec.Replicas, s.Spec.Ordinals = ptr.To[int32](2), &appsv1.StatefulSetOrdinals{Start: 1}
		}, pod: pod("new")},
	} {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)}, Status: appsv1.StatefulSetStatus{CurrentRevision: "old", UpdateRevision: "new"}}
			if test.change != nil {
				test.change(set)
			}
			if got := BusyStatefulSet(set, "db-2", test.pod); (got != "") != test.busy {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestJobsThatMakeNoPodsInThePlaceOfEvictedOnes(t *testing.T) {
	onDisruption := func(action batchv1.PodFailurePolicyAction) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			}}}
		}
	}
	noRetries := func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](0) }
	for name, test := range map[string]struct {
		change            []func(*batchv1.Job)
		busy, unforgiving bool
	}{
		"one with retries":      {},
		"one that is suspended": {change: []func(*batchv1.Job){func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }}, busy: true},
		"one that is done": {change: []func(*batchv1.Job){func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}}, busy: true},
		"one without retries":           {change: []func(*batchv1.Job){noRetries}, unforgiving: true},
		"one that has used them":        {change: []func(*batchv1.Job){func(j *batchv1.Job) { j.Status.Failed = 6 }}, unforgiving: true},
		"one that does not count this":  {change: []func(*batchv1.Job){noRetries, onDisruption(batchv1.PodFailurePolicyActionIgnore)}},
		"one that fails of this":        {change: []func(*batchv1.Job){onDisruption(batchv1.PodFailurePolicyActionFailJob)}, unforgiving: true},
		"one whose index has none left": {change: []func(*batchv1.Job){func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](2) }}, unforgiving: true},
		"one whose index has some left": {change: []func(*batchv1.Job){func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](3) }}},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{}
			for _, change := range test.change {
				change(job)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{batchv1.JobIndexFailureCountAnnotation: "2"}}}
			if busy, unforgiving := BusyJob(job), UnforgivingJob(job, pod); (busy != "") != test.busy || (unforgiving != "") != test.unforgiving {
				t.Errorf("got %q and %q", busy, unforgiving)
			}
		})
	}
}
