// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// recorded is a ShadowPod whose pod "first" has run, and was restarted twice.
func recorded(t *testing.T) *v1alpha1.ShadowPod {
	t.Helper()
	shadow := shadowPod()
	raw, err := json.Marshal(ran())
	if err != nil {
		t.Fatal(err)
	}
	shadow.Status = v1alpha1.ShadowPodStatus{
		PodUID: "first", Phase: "Running", ObservedGeneration: 1, Pod: &runtime.RawExtension{Raw: raw},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionTrue, Reason: "Scheduled"},
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"},
		},
	}
	return shadow
}

func ran() corev1.PodStatus {
	began := metav1.NewTime(testkit.Noon.Add(-time.Hour))
	return corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &began,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", RestartCount: 2, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
		}},
	}
}

// remotePod is the pod "first" of the ShadowPod.
func remotePod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: lubeck.name(), UID: "first",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "ShadowPod", Name: "web", UID: "shadow-uid", Controller: ptr.To(true),
			}},
		},
		Spec:   corev1.PodSpec{NodeName: "worker-1", RestartPolicy: corev1.RestartPolicyAlways},
		Status: ran(),
	}
	change(pod)
	return pod
}

func deleted(pod *corev1.Pod) {
	pod.DeletionTimestamp = &metav1.Time{Time: testkit.Noon.Add(30 * time.Second)}
	pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
}

func failed(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, reason, message
	}
}

// rejectedBy is a pod that the kubelet did not take.
func rejectedBy(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: because"}
	}
}

func disrupted(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason,
		})
	}
}

func exited(code int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, FinishedAt: metav1.NewTime(testkit.Noon.Add(-time.Minute)),
		}}
	}
}

// holding is a pod that does not go before its end is on record.
func holding(pod *corev1.Pod) {
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Finalizers = []string{v1alpha1.FinalizerRemotePod}
}

// letGo is a pod that its kubelet has let go, so that only finalizers hold it.
func letGo(pod *corev1.Pod) {
	pod.DeletionTimestamp = &metav1.Time{Time: testkit.Noon}
	pod.DeletionGracePeriodSeconds = ptr.To[int64](0)
}

func all(changes ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, change := range changes {
			change(pod)
		}
	}
}

func TestWhatBecomesOfAPodThatRan(t *testing.T) {
	const running, ends, fails = "Running", "Succeeded", "Failed"
	type fate struct {
		Action action
		Phase  string
		Ready  string
	}
	interrupted := fate{leavePod, running, offload.ReasonRemaking} // until the old object is gone
	removed := fate{removePod, running, offload.ReasonRemaking}
	released := fate{releasePod, running, offload.ReasonRemaking}
	for name, c := range map[string]struct {
		pod  func(*corev1.Pod) // nil: it is gone
		want fate
	}{
		"it runs":                              {func(*corev1.Pod) {}, fate{leavePod, running, "Ready"}},
		"somebody deletes it":                  {deleted, interrupted},
		"it is evicted by a drain":             {all(disrupted("EvictionByEvictionAPI"), deleted), interrupted},
		"and its containers end by that":       {all(disrupted("EvictionByEvictionAPI"), deleted, failed("", "")), interrupted},
		"it is preempted":                      {all(disrupted("PreemptionByScheduler"), deleted), interrupted},
		"its node does not answer":             {all(disrupted("DeletionByTaintManager"), deleted), interrupted},
		"its node is gone, and it is left":     {all(disrupted("DeletionByPodGC"), failed("", "")), removed},
		"its node is out of service":           {all(disrupted("DeletionByPodGC"), failed("", ""), deleted), interrupted},
		"its node has no memory left":          {all(disrupted("TerminationByKubelet"), failed("Evicted", "The node was low on resource: memory.")), removed},
		"its node had no disk left, long ago":  {failed("Evicted", ""), removed},
		"its node shuts down":                  {all(disrupted("TerminationByKubelet"), failed("Terminated", "")), removed},
		"its node shut down in an old version": {failed("Shutdown", ""), removed},
		"its node was shutting down":           {rejectedBy("NodeShutdown"), removed},
		"its node has no processor left":       {rejectedBy("OutOfcpu"), removed},
		"its node has no such device":          {rejectedBy("OutOfexample.com/device"), removed},
		"its node is no more what it was":      {rejectedBy("NodeAffinity"), removed},
		"its kubelet does not take it":         {rejectedBy("UnexpectedAdmissionError"), removed},
		"its kubelet has a reason of its own":  {rejectedBy("ReasonOfANewVersion"), removed},
		"it is gone":                           {nil, fate{makePod, running, offload.ReasonRemaking}},

		"it completes":                    {exited(0), fate{leavePod, ends, "Ready"}},
		"it fails":                        {exited(1), fate{leavePod, fails, "Ready"}},
		"it fails and names a rejection":  {all(exited(1), func(p *corev1.Pod) { p.Status.Message = "Pod was rejected" }), fate{leavePod, fails, "Ready"}},
		"it completes and is cleaned up":  {all(exited(0), deleted), fate{leavePod, ends, "Ready"}},
		"it runs out of its own deadline": {failed("DeadlineExceeded", ""), fate{leavePod, fails, "Ready"}},

		"it may complete and somebody deletes it": {all(holding, deleted), interrupted},
		"it is deleted by force":                  {all(holding, letGo), released},
		"it fails by its deletion":                {all(holding, failed("", ""), deleted), released},
		"its node was lost with it":               {all(holding, disrupted("DeletionByPodGC"), failed("", ""), letGo), released},
		"it completes within its grace":           {all(holding, deleted, exited(0)), fate{leavePod, ends, "Ready"}},
		"it completed and was collected":          {all(holding, exited(0), letGo), fate{leavePod, ends, "Ready"}},

		"it is seen as it was before": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, fate{leavePod, running, "Ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &observation{shadow: recorded(t), now: testkit.Noon}
			if c.pod != nil {
				seen.pod = remotePod(c.pod)
			}
			next := decide(seen)
			got := fate{Action: next.action, Phase: next.status.Phase}
			if ready := meta.FindStatusCondition(next.status.Conditions, v1alpha1.ConditionReady); ready != nil {
				got.Ready = ready.Reason
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if next.unrecoverable() {
				t.Error("home is told that it cannot be made again")
			}
		})
	}
}

func TestCompletedPodIsNeverMadeAgain(t *testing.T) {
	for _, phase := range []string{"Succeeded", "Failed"} {
		shadow := recorded(t)
		shadow.Status.Phase = phase
		if next := decide(&observation{shadow: shadow, now: testkit.Noon}); next.action != leavePod || next.unrecoverable() {
			t.Errorf("%s: got %+v", phase, next)
		}
	}
}

func TestPodIsLetGoWhenItsEndIsOnRecord(t *testing.T) {
	ended := recorded(t)
	ended.Status.Phase = "Succeeded"
	unrecoverable := recorded(t)
	testkit.SetCondition(&unrecoverable.Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, "Because")
	for name, c := range map[string]struct {
		shadow *v1alpha1.ShadowPod
		pod    func(*corev1.Pod)
		want   action
	}{
		"it is on record":               {ended, all(holding, exited(0)), releasePod},
		"it is already":                 {ended, exited(0), leavePod},
		"it is deleted meanwhile":       {ended, all(holding, exited(0), letGo), releasePod},
		"its record is given up":        {unrecoverable, holding, removePod},
		"and it ends":                   {unrecoverable, all(holding, deleted), releasePod},
		"its record was lost":           {shadowPod(), all(holding, letGo, ofAnother), releasePod},
		"another's that is here":        {shadowPod(), all(holding, ofAnother), leavePod},
		"another's that has no such":    {shadowPod(), all(letGo, ofAnother), leavePod},
		"another's by another software": {shadowPod(), all(holding, letGo, func(p *corev1.Pod) { p.OwnerReferences = nil }), leavePod},
	} {
		if got := decide(&observation{shadow: c.shadow, pod: remotePod(c.pod), now: testkit.Noon}).action; got != c.want {
			t.Errorf("%s: action %d, want %d", name, got, c.want)
		}
	}
}

// ofAnother is a pod of an earlier ShadowPod of the name.
func ofAnother(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "earlier" }

func TestPodThatNoKubeletTookHasNotRun(t *testing.T) {
	next := decide(&observation{shadow: shadowPod(), pod: remotePod(rejectedBy("OutOfcpu")), now: testkit.Noon})
	if next.status.Phase != "Pending" || next.action != removePod {
		t.Errorf("home sees phase %s", next.status.Phase)
	}
}

func TestRestartsOfEveryKindOfContainerAreKept(t *testing.T) {
	status := func(name string, restarts int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, RestartCount: restarts}}
	}
	counts := func(pod *corev1.Pod, init, container, debug int32) {
		pod.Status.InitContainerStatuses = status("sidecar", init)
		pod.Status.ContainerStatuses = status("c", container)
		pod.Status.EphemeralContainerStatuses = status("debug", debug)
	}
	shown := func(of v1alpha1.ShadowPodStatus) map[string]int32 {
		sums := map[string]int32{}
		for name, count := range of.Restarts {
			sums[name] += count
		}
		for _, c := range offload.ContainerStatuses(offload.RecordedPod(&of)) {
			sums[c.Name] += c.RestartCount
		}
		return sums
	}
	shadow := shadowPod()
	for i, step := range []struct {
		uid                    types.UID
		init, container, debug int32
		want                   map[string]int32
	}{
		{"first", 1, 3, 0, map[string]int32{"sidecar": 1, "c": 3, "debug": 0}},
		{"first", 1, 2, 0, map[string]int32{"sidecar": 1, "c": 3, "debug": 0}},  // its kubelet forgot
		{"second", 0, 0, 0, map[string]int32{"sidecar": 2, "c": 4, "debug": 0}}, // to be made again is a restart
		{"second", 2, 1, 1, map[string]int32{"sidecar": 4, "c": 5, "debug": 1}},
		{"third", 1, 0, 0, map[string]int32{"sidecar": 6, "c": 6, "debug": 1}},
	} {
		pod := remotePod(func(pod *corev1.Pod) { counts(pod, step.init, step.container, step.debug) })
		pod.UID = step.uid
		shadow.Status = decide(&observation{shadow: shadow, pod: pod, now: testkit.Noon}).status
		if diff := cmp.Diff(step.want, shown(shadow.Status)); diff != "" {
			t.Errorf("step %d: -want +got:\n%s", i, diff)
		}
	}
	if shadow.Status.Recreations != 2 {
		t.Errorf("%d recreations", shadow.Status.Recreations)
	}
}

// A pod that its provider had to make again is not scheduled, pulled and started in sight of home once more.
func TestPhaseStaysRunningWhileThePodIsMadeAgain(t *testing.T) {
	pending := remotePod(func(pod *corev1.Pod) {
		pod.UID, pod.Spec.NodeName, pod.Status = "second", "", corev1.PodStatus{Phase: corev1.PodPending}
	})
	next := decide(&observation{shadow: recorded(t), pod: pending, now: testkit.Noon})
	if known := offload.RecordedPod(&next.status); next.status.Phase != "Running" || known.Phase != corev1.PodRunning {
		t.Errorf("home sees %s, %s", next.status.Phase, known.Phase)
	}
	if next.status.PodUID != "second" || next.status.Recreations != 1 {
		t.Errorf("got %+v", next.status)
	}
}

func TestPodThatRanIsGivenUpWithTheCause(t *testing.T) {
	ending := recorded(t)
	next := decide(&observation{shadow: ending, ending: true, now: testkit.Noon})
	if c := meta.FindStatusCondition(next.status.Conditions, v1alpha1.ConditionUnrecoverable); c == nil || c.Reason != v1alpha1.ReasonNamespaceTerminating {
		t.Errorf("got %+v", c)
	}
	tired := recorded(t)
	tired.Status.RecreationsInARow = mostRecreations
	tired.Status.Pod = nil
	next = decide(&observation{shadow: tired, now: testkit.Noon})
	if c := meta.FindStatusCondition(next.status.Conditions, v1alpha1.ConditionUnrecoverable); c == nil || c.Reason != reasonRemadeTooOften {
		t.Errorf("got %+v", c)
	}
}

// A pod that has run for long begins a new series, however often it was made before.
func TestLongRunForgetsEarlierRemakes(t *testing.T) {
	shadow := recorded(t)
	shadow.Status.Recreations, shadow.Status.RecreationsInARow = 2*mostRecreations, mostRecreations
	made := decide(&observation{shadow: shadow, now: testkit.Noon})
	if made.action != makePod {
		t.Fatalf("action %d", made.action)
	}
	shadow.Status = made.status
	shadow.Status = decide(&observation{shadow: shadow, now: testkit.Noon, pod: remotePod(func(pod *corev1.Pod) {
		pod.UID, pod.Status = "second", corev1.PodStatus{Phase: corev1.PodPending}
	})}).status
	if got := shadow.Status; got.RecreationsInARow != 1 || got.Recreations != 2*mostRecreations+1 {
		t.Errorf("got %d, %d in a row", got.Recreations, got.RecreationsInARow)
	}
	// It goes at once, and so does the one after it.
	next := decide(&observation{shadow: shadow, now: testkit.Noon})
	if next.unrecoverable() || next.again != firstDelay {
		t.Errorf("given up: %t, made again in %s", next.unrecoverable(), next.again)
	}
	shadow.Status = next.status
	shadow.Status = decide(&observation{shadow: shadow, now: testkit.Noon, pod: remotePod(func(pod *corev1.Pod) {
		pod.UID, pod.Status = "third", corev1.PodStatus{Phase: corev1.PodPending}
	})}).status
	if got := shadow.Status.RecreationsInARow; got != 2 {
		t.Errorf("%d in a row", got)
	}
}
