// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestRestartsOfEarlierPodsAreKept(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	restarted := func(times int32) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].RestartCount = times }
	}
	first := w.run(w.replicaSet(), "web-0-aaaaa", corev1.PodRunning, restarted(3))
	if w.keepRecord(); w.replicaSet().Annotations[v1alpha1.AnnotationRecord] != "" {
		t.Error("the first pod costs a write")
	}
	first.Status.Phase, first.Status.Reason = corev1.PodFailed, "Evicted"
	w.cluster.Put(first)
	if got := w.told(); got.Phase != corev1.PodRunning {
		t.Errorf("of a pod that is made again home is told %s", got.Phase)
	}
	w.run(w.replicaSet(), "web-0-bbbbb", corev1.PodRunning, restarted(1))
	w.keepRecord()
	w.cluster.Remove(first)
	want := map[string]int32{"main": 4} // to be made again is a restart
	if got := w.shadow().Status; got.Recreations != 1 || !cmp.Equal(want, got.Restarts) || got.PodUID != "uid-web-0-bbbbb" {
		t.Errorf("got %+v", got)
	}
	before := w.replicaSet().ResourceVersion
	if w.keepRecord(); w.replicaSet().ResourceVersion != before {
		t.Error("the record is written again")
	}
}

func TestWhatTheClusterDoesToAJobIsTold(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, never))
	pod := w.run(w.job(), "web-0-aaaaa", corev1.PodFailed, func(pod *corev1.Pod) { pod.Status.Reason = "OutOfcpu" })
	if got := w.told(); got.Phase != corev1.PodRunning {
		t.Errorf("home is told %s of what the platform did", got.Phase)
	}
	job := w.job()
	job.Status.Conditions = []batchv1.JobCondition{{
		Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "no more",
	}}
	w.cluster.Put(job)
	if !meta.IsStatusConditionTrue(w.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable) {
		t.Error("home is not told that no other pod will come")
	}
	w.cluster.Remove(pod)
	job = w.job()
	job.Status.Conditions[0].Type = batchv1.JobComplete
	w.cluster.Put(job)
	if got := w.shadow().Status; got.Phase != "Succeeded" || w.told().Phase != corev1.PodSucceeded {
		t.Errorf("a pod that was taken away after it had ended is told as %s", got.Phase)
	}
}

func TestWhyThereIsNoPodIsTold(t *testing.T) {
	for message, want := range map[string]string{
		`pods "web-0-x" is forbidden: exceeded quota: q`:    v1alpha1.ReasonNoRoom,
		`pods "web-0-x" is forbidden: violates PodSecurity`: v1alpha1.ReasonPodRefused,
	} {
		w := newWorld(t)
		w.create(shadow(t, nil))
		set := w.replicaSet()
		set.Status.Conditions = []appsv1.ReplicaSetCondition{{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: message,
		}}
		w.cluster.Put(set)
		got := meta.FindStatusCondition(w.shadow().Status.Conditions, v1alpha1.ConditionScheduled)
		if got == nil || got.Status != metav1.ConditionFalse || got.Reason != want {
			t.Errorf("%s: got %+v", message, got)
		}
		if told := w.told(); told.Phase != corev1.PodPending || told.Reason != want || !strings.Contains(told.Message, message) {
			t.Errorf("%s: the pod is told %+v", message, told)
		}
	}
}

func TestWhatThePodWaitsForIsTold(t *testing.T) {
	since := metav1.NewTime(testkit.Noon.Add(time.Minute))
	for name, test := range map[string]struct {
		scheduled corev1.PodCondition
		want      metav1.Condition
	}{
		"no room": {
			corev1.PodCondition{Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
			metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoRoom, LastTransitionTime: since},
		},
		"nothing": {
			corev1.PodCondition{Status: corev1.ConditionTrue},
			metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ConditionScheduled, LastTransitionTime: since},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(shadow(t, nil))
			w.run(w.replicaSet(), "web-0-aaaaa", corev1.PodPending, func(pod *corev1.Pod) {
				test.scheduled.Type, test.scheduled.LastTransitionTime = corev1.PodScheduled, since
				pod.Status.Conditions = []corev1.PodCondition{test.scheduled}
			})
			got := meta.FindStatusCondition(w.shadow().Status.Conditions, v1alpha1.ConditionScheduled)
			if got == nil || got.Status != test.want.Status || got.Reason != test.want.Reason ||
				!got.LastTransitionTime.Equal(&test.want.LastTransitionTime) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestWhatIsLeftOutIsToldThere(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{"prometheus.io/scrape": "true"}
	}))
	set := w.replicaSet()
	if _, there := set.Spec.Template.Annotations["prometheus.io/scrape"]; there {
		t.Error("it travels")
	}
	w.run(set, "web-0-aaaaa", corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Annotations = set.Spec.Template.Annotations
	})
	c := meta.FindStatusCondition(w.shadow().Status.Conditions, v1alpha1.ConditionMetadata)
	if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "prometheus.io/scrape") {
		t.Errorf("got %+v", c)
	}
}

func TestNobodyDebugsThere(t *testing.T) {
	w := newWorld(t)
	w.create(shadow(t, nil))
	if meta.FindStatusCondition(w.shadow().Status.Conditions, v1alpha1.ConditionDebug) != nil {
		t.Error("nobody has asked")
	}
	changed := w.shadow()
	changed.Spec.Pod = shadow(t, func(p *corev1.PodTemplateSpec) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "registry.example/debug:1"},
		}}
	}).Spec.Pod
	if err := w.link.Client().Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionFalse(w.shadow().Status.Conditions, v1alpha1.ConditionDebug) {
		t.Errorf("it is not said: %+v", w.shadow().Status.Conditions)
	}
}
