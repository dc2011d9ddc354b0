// SPDX-License-Identifier: Apache-2.0

package move

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var setOwner = v1alpha1.MoveOwner{Kind: "ReplicaSet", Name: "web", UID: "set"}

// moving is a move of pod original to node there that began a minute ago and has done nothing yet.
func moving(phase v1alpha1.MovePhase) *v1alpha1.PodMove {
	m := &v1alpha1.PodMove{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "away", UID: "move", CreationTimestamp: ago(time.Minute), Finalizers: []string{v1alpha1.FinalizerPodMove},
		},
		Spec: v1alpha1.PodMoveSpec{
			Pod: v1alpha1.MovedPod{Name: "original", UID: "original"}, Destination: v1alpha1.MoveDestination{Node: "there"},
			Deadline: &metav1.Duration{Duration: 10 * time.Minute},
		},
	}
	m.Status.Phase = phase
	if phase != "" {
		m.Status.Owner = setOwner.DeepCopy()
	}
	return m
}

// theCopy is Ready for a minute, and the PodMove's.
func theCopy(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := runningPod("copy", append([]func(*corev1.Pod){readyFor(time.Minute), on("there"), func(p *corev1.Pod) {
		p.Annotations[v1alpha1.AnnotationMove] = "move"
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "PodMove", UID: "move"}}
	}}, change...)...)
	return &pod
}

func handedOver(p *corev1.Pod) {
	p.OwnerReferences = nil
	p.Annotations[corev1.PodDeletionCost] = HighestCost
}

func settled(p *corev1.Pod) {
	delete(p.Annotations, corev1.PodDeletionCost)
	delete(p.Annotations, v1alpha1.AnnotationMove)
}

func adopted(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "set", Controller: ptr.To(true)}}
}

// world is a move of one of two pods, whose copy is Ready.
func world(phase v1alpha1.MovePhase, change ...func(*Observed)) Observed {
	original := runningPod("original")
	seen := Observed{
		Move: moving(phase), Original: &original, Copy: theCopy(),
		Owner: &Owner{MoveOwner: setOwner, Replicas: 2},
	}
	for _, c := range change {
		c(&seen)
	}
	if seen.Owner == nil {
		return seen
	}
	seen.Owner.Pods = append(seen.Owner.Pods, runningPod("sibling"))
	for _, pod := range []*corev1.Pod{seen.Original, seen.Copy} {
		if pod != nil && (pod == seen.Original || metav1.GetControllerOf(pod) != nil) {
			seen.Owner.Pods = append(seen.Owner.Pods, *pod)
		}
	}
	return seen
}

func theOriginal(change func(*corev1.Pod)) func(*Observed) {
	return func(s *Observed) { change(s.Original) }
}

func copied(change ...func(*corev1.Pod)) func(*Observed) {
	return func(s *Observed) { s.Copy = theCopy(change...) }
}

func noCopy(s *Observed)     { s.Copy = nil }
func noOriginal(s *Observed) { s.Original = nil }
func noOwner(s *Observed)    { s.Owner = nil }
func bare(s *Observed)       { s.Owner, s.Move.Status.Owner = nil, nil }
func deleted(s *Observed)    { s.Move.DeletionTimestamp = ptr.To(ago(0)) }
func late(s *Observed)       { s.Move.CreationTimestamp = ago(time.Hour) }
func known(s *Observed)      { s.Move.Status.Copy = &v1alpha1.MoveParty{Name: "copy", UID: "copy"} }
func busy(s *Observed)       { s.Owner.Busy = "it rolls out" }

// over has the move be over for that long, and be kept for a minute.
func over(since time.Duration) func(*Observed) {
	return func(s *Observed) {
		s.Move.Finalizers, s.Move.Spec.TTLSecondsAfterFinished = nil, ptr.To(int32(60))
		s.Move.Status.FinishedAt = ptr.To(ago(since))
	}
}

// single is a move of the only pod of its owner.
func single(change ...func(*Observed)) Observed {
	seen := world(v1alpha1.MoveCopying, change...)
	seen.Owner.Replicas, seen.Owner.Pods = 1, []corev1.Pod{*seen.Original}
	return seen
}

func brokenSibling(s *Observed) {
	s.Owner.Pods = append(s.Owner.Pods, runningPod("broken", unready))
	s.Owner.Replicas = 3
}

func TestNext(t *testing.T) {
	const (
		copying, handing, back = v1alpha1.MoveCopying, v1alpha1.MoveHandingOver, v1alpha1.MoveRollingBack
		lost                   = v1alpha1.ReasonCopyLost
	)
	lowest := theOriginal(cost(LowestCost))
	for name, test := range map[string]struct {
		seen   Observed
		want   Do
		reason string
	}{
		// Before it begins.
		"a new move begins":                       {seen: world("", noCopy), want: Begin},
		"one that something stands against fails": {seen: world("", noCopy, func(s *Observed) { s.Findings = []Cause{{"NodeFull", "x"}, {"NodeClosed", "y"}} }), want: Fail, reason: "NodeFull"},
		"one of an owner with another waits":      {seen: world("", noCopy, func(s *Observed) { s.Waits = true }), want: Wait, reason: v1alpha1.ReasonWaitsForOther},
		"one that has waited begins":              {seen: world(v1alpha1.MovePending, noCopy), want: Begin},
		"one that has waited for too long fails":  {seen: world(v1alpha1.MovePending, noCopy, late), want: Fail, reason: v1alpha1.ReasonDeadlineExceeded},
		"one that was deleted before is let go":   {seen: world("", noCopy, deleted), want: Release},
		"one that is over is let go":              {seen: world(v1alpha1.MoveSucceeded), want: Release},
		"and then left alone":                     {seen: world(v1alpha1.MoveFailed, func(s *Observed) { s.Move.Finalizers = nil }), want: Nothing},
		"and kept for its time":                   {seen: world(v1alpha1.MoveFailed, over(59*time.Second)), want: Nothing},
		"and then removed":                        {seen: world(v1alpha1.MoveSucceeded, over(time.Minute)), want: Remove},
		"unless somebody has deleted it":          {seen: world(v1alpha1.MoveSucceeded, over(time.Minute), deleted), want: Nothing},
		// With a copy that has not taken over.
		"the copy is created":                              {seen: world(copying, noCopy), want: CreateCopy},
		"the copy must be Ready":                           {seen: world(copying, known, copied(unready)), want: Wait, reason: v1alpha1.ReasonMoving},
		"and for minReadySeconds":                          {seen: world(copying, func(s *Observed) { s.Owner.MinReadySeconds = 61 }), want: Wait, reason: v1alpha1.ReasonMoving},
		"though somebody took its annotations off":         {seen: world(copying, known, lowest, copied(func(p *corev1.Pod) { p.Annotations = nil })), want: HandOver},
		"the original is to go first":                      {seen: world(copying, func(s *Observed) { s.Owner.MinReadySeconds = 60 }), want: LowerCost},
		"then the copy takes over":                         {seen: world(copying, lowest), want: HandOver},
		"for the only pod at once":                         {seen: single(), want: HandOver},
		"unless that costs as much as its copy":            {seen: single(theOriginal(cost(HighestCost)), theOriginal(readyFor(48*time.Hour))), want: LowerCost},
		"with a broken sibling the original is evicted":    {seen: world(copying, lowest, brokenSibling), want: Evict},
		"and then the copy takes over":                     {seen: world(copying, theOriginal(ending), brokenSibling), want: HandOver},
		"a bare pod's copy takes over":                     {seen: world(copying, bare), want: HandOver},
		"a copy that is Ready takes over for a lost one":   {seen: world(copying, noOriginal), want: HandOver},
		"one that is not Ready does not":                   {seen: world(copying, noOriginal, copied(unready)), want: Abort, reason: v1alpha1.ReasonOriginalLost},
		"nor is one created":                               {seen: world(copying, noOriginal, noCopy), want: Abort, reason: v1alpha1.ReasonOriginalLost},
		"nor for a bare pod, which was deleted on purpose": {seen: world(copying, bare, noOriginal), want: Abort, reason: v1alpha1.ReasonOriginalLost},
		"a lost copy is not made again":                    {seen: world(copying, known, noCopy), want: Abort, reason: lost},
		"a copy that has failed":                           {seen: world(copying, copied(failed)), want: Abort, reason: lost},
		"a copy that is being deleted":                     {seen: world(copying, copied(ending)), want: Abort, reason: lost},
		"a rollout":                                        {seen: world(copying, busy), want: Abort, reason: v1alpha1.ReasonRolloutUnderWay},
		"an owner that is gone":                            {seen: world(copying, noOwner), want: Abort, reason: v1alpha1.ReasonOwnerLost},
		"a copy that is late":                              {seen: world(copying, copied(unready), late), want: Abort, reason: v1alpha1.ReasonDeadlineExceeded},
		"the deletion of the PodMove":                      {seen: world(copying, lowest, deleted), want: Abort, reason: v1alpha1.ReasonAborted},
		// With a copy that takes over.
		"the owner is to adopt the copy":                     {seen: world(handing, lowest, copied(handedOver)), want: Wait, reason: v1alpha1.ReasonMoving},
		"the status may not say yet that it was handed over": {seen: world(copying, lowest, copied(handedOver)), want: Wait, reason: v1alpha1.ReasonMoving},
		"then to delete the original":                        {seen: world(handing, lowest, copied(handedOver, adopted)), want: Wait, reason: v1alpha1.ReasonMoving},
		"which is evicted if the owner deleted another":      {seen: world(handing, lowest, copied(handedOver, adopted), func(s *Observed) { s.Owner.Replicas = 3 }), want: Evict},
		"when the original goes the copy is settled":         {seen: world(handing, theOriginal(ending), copied(handedOver, adopted)), want: Settle},
		"and when that is done the move is over":             {seen: world(handing, noOriginal, copied(handedOver, adopted, settled)), want: Succeed, reason: v1alpha1.ReasonMoved},
		"a deadline is no matter any more":                   {seen: world(handing, late, noOriginal, copied(handedOver, adopted, settled)), want: Succeed, reason: v1alpha1.ReasonMoved},
		"nor a deletion":                                     {seen: world(handing, deleted, lowest, copied(handedOver, adopted)), want: Wait, reason: v1alpha1.ReasonMoving},
		"nor a rollout":                                      {seen: world(handing, busy, theOriginal(ending), copied(handedOver, adopted)), want: Settle},
		"a bare original is evicted":                         {seen: world(handing, bare, copied(handedOver)), want: Evict},
		"its copy is settled":                                {seen: world(handing, bare, noOriginal, copied(handedOver)), want: Settle},
		"a copy that nobody can adopt is taken back":         {seen: world(handing, noOwner, copied(handedOver)), want: Abort, reason: v1alpha1.ReasonOwnerLost},
		"a copy that ends right then":                        {seen: world(handing, lowest, copied(handedOver, adopted, failed)), want: Abort, reason: lost},
		"and one that is gone":                               {seen: world(handing, lowest, known, noCopy), want: Abort, reason: lost},
		// Back.
		"the cost is restored":                {seen: world(back, lowest), want: RestoreCost},
		"then the copy is deleted":            {seen: world(back), want: DeleteCopy},
		"one that was handed over, too":       {seen: world(back, copied(handedOver)), want: DeleteCopy},
		"one that was adopted is the owner's": {seen: world(back, copied(handedOver, adopted)), want: Fail},
		"one that goes is gone":               {seen: world(back, copied(ending)), want: Fail},
		"nothing is left to undo":             {seen: world(back, noCopy, noOriginal), want: Fail},
	} {
		t.Run(name, func(t *testing.T) {
			got := Next(test.seen, noon)
			if got.Do != test.want || got.Cause.Reason != test.reason {
				t.Errorf("got %s (%s), want %s (%s)", got.Do, got.Cause, test.want, test.reason)
			}
		})
	}
}

// A pod that had the lowest cost before is not taken for one whose cost a move has lowered.
func TestCostOfTheUserIsNotRestoredForEver(t *testing.T) {
	seen := world(v1alpha1.MoveRollingBack, noCopy, theOriginal(cost(LowestCost)))
	seen.Move.Status.Original = &v1alpha1.MoveParty{DeletionCost: LowestCost}
	if got := Next(seen, noon); got.Do != Fail {
		t.Errorf("got %s", got.Do)
	}
}

func TestWaitsNoLongerThanNeeded(t *testing.T) {
	seen := world(v1alpha1.MoveCopying, func(s *Observed) { s.Owner.MinReadySeconds = 90 })
	if diff := cmp.Diff(30*time.Second, Next(seen, noon).After); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(9*time.Minute, Next(world(v1alpha1.MoveCopying, copied(unready)), noon).After); diff != "" {
		t.Error(diff)
	}
}

func TestTooLateSaysWhatTheSchedulerSays(t *testing.T) {
	seen := world(v1alpha1.MoveCopying, late, copied(unready, unassigned, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes"})
	}))
	if diff := cmp.Diff("The copy was not Ready in time: 0/3 nodes", Next(seen, noon).Cause.Message); diff != "" {
		t.Error(diff)
	}
}
