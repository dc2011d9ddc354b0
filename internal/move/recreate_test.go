// SPDX-License-Identifier: Apache-2.0

package move

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// recreation is a move by DeleteFirst of a bare pod, whose original is gone and whose copy is handed over and Ready.
func recreation(phase v1alpha1.MovePhase, change ...func(*Observed)) Observed {
	original := runningPod("original")
	seen := Observed{Move: moving(phase), Original: &original, Copy: theCopy(handedOver)}
	seen.Move.Status.Owner, seen.Move.Status.Method, seen.Move.Status.Record = nil, v1alpha1.MoveDeleteFirst, Record(&original)
	known(&seen)
	for _, c := range append([]func(*Observed){noOriginal}, change...) {
		c(&seen)
	}
	return seen
}

func unknown(s *Observed) { s.Copy, s.Move.Status.Copy = nil, nil }
func leave(s *Observed)   { s.Move.Spec.OnFailure = v1alpha1.OnFailureLeave }

// untouched has the original be there as it is noted down.
func untouched(change ...func(*corev1.Pod)) func(*Observed) {
	return func(s *Observed) {
		unknown(s)
		pod := runningPod("original", change...)
		s.Original = &pod
	}
}

func namesake(change ...func(*corev1.Pod)) func(*Observed) {
	return func(s *Observed) {
		unknown(s)
		s.Namesake = theCopy(change...)
	}
}

func TestNextOfRecreation(t *testing.T) {
	const (
		begun, handing, back = v1alpha1.MoveRecreating, v1alpha1.MoveHandingOver, v1alpha1.MoveRollingBack
		moving, lost, late_  = v1alpha1.ReasonMoving, v1alpha1.ReasonCopyLost, v1alpha1.ReasonDeadlineExceeded
	)
	changed := func(p *corev1.Pod) { p.Labels["app"] = "other" }
	succeeded := func(p *corev1.Pod) { unready(p); p.Status.Phase = corev1.PodSucceeded }
	for name, test := range map[string]struct {
		seen   Observed
		want   Do
		reason string
	}{
		"the original is evicted":                  {recreation(begun, untouched()), Evict, ""},
		"one that has changed is noted down first": {recreation(begun, untouched(changed)), Note, ""},
		"it is to end":                             {recreation(begun, untouched(ending)), Wait, moving},
		"and then it is made again":                {recreation(begun, unknown), Recreate, ""},
		"and becomes nobody's":                     {recreation(begun, copied()), HandOver, moving},
		"it is to be Ready":                        {recreation(handing, copied(handedOver, unready)), Wait, moving},
		"then it is settled":                       {recreation(handing), Settle, ""},
		"and the move is over":                     {recreation(handing, copied(handedOver, settled)), Succeed, v1alpha1.ReasonMoved},
		"so it is for one that is done":            {recreation(handing, copied(handedOver, succeeded, settled)), Succeed, v1alpha1.ReasonMoved},
		"a deadline is no matter any more":         {recreation(handing, late), Settle, ""},
		"nor a deletion":                           {recreation(handing, deleted), Settle, ""},

		"an original that ends by itself stays": {recreation(begun, untouched(failed)), Abort, v1alpha1.ReasonOriginalLost},
		"the PodMove is deleted":                {recreation(begun, unknown, deleted), Abort, v1alpha1.ReasonAborted},
		"an original that ends too late":        {recreation(begun, untouched(ending), late), Abort, late_},
		"a copy that is late":                   {recreation(handing, copied(handedOver, unready), late), Abort, late_},
		"a copy that fails":                     {recreation(handing, copied(handedOver, failed)), Abort, lost},
		"a copy that is deleted":                {recreation(handing, noCopy), Abort, lost},
		"somebody else takes the name":          {recreation(begun, namesake()), Abort, v1alpha1.ReasonNameTaken},

		"an original that is there is left alone":      {recreation(back, untouched()), Fail, ""},
		"so is one that has ended":                     {recreation(back, untouched(failed)), Fail, ""},
		"one that ends is waited for":                  {recreation(back, untouched(ending)), Wait, ""},
		"a copy that did not start goes":               {recreation(back, copied(handedOver, unready)), DeleteCopy, ""},
		"so does one that has failed":                  {recreation(back, copied(handedOver, failed)), DeleteCopy, ""},
		"it is waited for":                             {recreation(back, copied(handedOver, ending)), Wait, ""},
		"then the original is made again":              {recreation(back, noCopy), Restore, ""},
		"and becomes nobody's again":                   {recreation(back, namesake()), Settle, ""},
		"and that is the end":                          {recreation(back, namesake(settled)), Fail, ""},
		"a copy that has started after all is settled": {recreation(back), Settle, ""},
		"and stays":                              {recreation(back, copied(handedOver, settled)), Fail, ""},
		"a copy that is to be left is settled":   {recreation(back, copied(handedOver, unready), leave), Settle, ""},
		"and left":                               {recreation(back, copied(handedOver, settled, unready), leave), Fail, ""},
		"but without one there is none to leave": {recreation(back, noCopy, leave), Restore, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Next(test.seen, noon)
			if got.Do != test.want || got.Cause.Reason != test.reason {
				t.Errorf("got %s (%s), want %s (%s)", got.Do, got.Cause, test.want, test.reason)
			}
		})
	}
}

// The pod comes out of the record as it was, but for where it is to run, also after it was restored before.
func TestRecordedPodIsMadeAgain(t *testing.T) {
	m := moving(v1alpha1.MoveRecreating)
	m.Status.Method, m.Status.Owner, m.Status.Original = v1alpha1.MoveDeleteFirst, nil, &v1alpha1.MoveParty{Name: "original", Node: "here"}
	original := runningPod("original", func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "tool"}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "tool:1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}
	})
	want := func(affinity *corev1.NodeAffinity) *corev1.Pod {
		return &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "original", Labels: map[string]string{"app": "tool"}, Annotations: map[string]string{v1alpha1.AnnotationMove: "move"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "hanse.dev/v1alpha1", Kind: "PodMove", Name: "away", UID: "move"}},
			},
			Spec: corev1.PodSpec{Containers: original.Spec.Containers, Affinity: &corev1.Affinity{NodeAffinity: affinity}},
		}
	}
	m.Status.Record = Record(&original)
	for range 2 {
		sent, err := Recreated(m)
		if diff := cmp.Diff(want(&corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: toNode("there")}), sent); diff != "" || err != nil {
			t.Error(diff, err)
		}
		restored, err := Restored(m)
		atHome := corev1.PreferredSchedulingTerm{Weight: 100, Preference: toNode("here").NodeSelectorTerms[0]}
		if diff := cmp.Diff(want(&corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{atHome}}), restored); diff != "" || err != nil {
			t.Error(diff, err)
		}
		m.Status.Record = Record(restored)
	}
}

func TestRecognise(t *testing.T) {
	const recreating, back = v1alpha1.MoveRecreating, v1alpha1.MoveRollingBack
	other := func(p *corev1.Pod) { p.UID = "other" }
	for name, test := range map[string]struct {
		phase    v1alpha1.MovePhase
		pod      *corev1.Pod
		isCopy   bool
		namesake bool
	}{
		"the original":                     {recreating, theCopy(settled, func(p *corev1.Pod) { p.UID = "original" }), false, false},
		"the copy before it is noted":      {recreating, theCopy(other), true, false},
		"the copy after it is settled":     {recreating, theCopy(settled), true, false},
		"somebody else's":                  {recreating, theCopy(settled, other), false, true},
		"the copy when it is rolled back":  {back, theCopy(), true, false},
		"what is made again in that place": {back, theCopy(other), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			seen := recreation(test.phase, noCopy)
			seen.Recognise(test.pod)
			if (seen.Copy != nil) != test.isCopy || (seen.Namesake != nil) != test.namesake {
				t.Errorf("copy %v, namesake %v", seen.Copy, seen.Namesake)
			}
		})
	}
}

func TestCopyIsRefusedSinceTheFirstTime(t *testing.T) {
	m := moving(v1alpha1.MoveRecreating)
	if since := RefusedSince(m); !since.IsZero() {
		t.Errorf("never refused, but since %s", since)
	}
	for _, before := range []time.Duration{time.Minute, time.Second} {
		m.Status.Steps = append(m.Status.Steps, v1alpha1.MoveStep{Action: v1alpha1.MoveCopyRefused, Time: ago(before)})
	}
	if since := RefusedSince(m); since != ago(time.Minute) {
		t.Errorf("since %s", since)
	}
}
