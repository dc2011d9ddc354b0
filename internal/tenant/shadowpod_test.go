// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestPodIsMadeOnceAndToldOfWhenReady(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	pod := s.pod()
	if pod == nil || !madeFor(s.shadow(), pod) || pod.Labels[v1alpha1.LabelPeer] != "lubeck" || pod.Labels[v1alpha1.LabelHomeUID] != "home-uid" {
		t.Fatalf("got pod %v", pod)
	}
	if again := s.run(); again != schedulingDelay {
		t.Errorf("looks again in %s, want %s", again, schedulingDelay)
	}
	s.becomes(func(status *corev1.PodStatus) {
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
		}}
	})
	s.run()
	s.becomes(s.running)
	s.run()
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	shadow := s.shadow()
	testkit.ExpectCondition(s, shadow.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	testkit.ExpectCondition(s, shadow.Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled")
	if shadow.Status.PodUID != pod.UID || shadow.Status.Phase != "Running" || shadow.Status.ObservedGeneration != 1 {
		t.Errorf("got status %+v", shadow.Status)
	}
}

func waitingFor(reason string) func(*corev1.PodStatus) {
	return func(status *corev1.PodStatus) {
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		}}
	}
}

func TestTroubleIsToldAtOnce(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(waitingFor("ImagePullBackOff"))
	s.run()
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
}

func TestWaitingIsToldAfterAWhile(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.Clock.Step(schedulingDelay)
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
}

func TestStartIsToldWhenItTakesLong(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	pod := s.pod()
	pod.Spec.NodeName = "n"
	s.Home.Put(pod)
	s.becomes(waitingFor("ContainerCreating"))
	s.Clock.Step(schedulingDelay)
	if again := s.run(); again != creatingDelay-schedulingDelay {
		t.Errorf("looks again in %s", again)
	}
	s.becomes(func(status *corev1.PodStatus) {
		s.running(status)
		status.Conditions[1].Status = corev1.ConditionFalse
	})
	if again := s.run(); again != startingDelay {
		t.Errorf("looks again in %s", again)
	}
	s.Home.ExpectWrites("create Pod web")
	s.Clock.Step(startingDelay)
	s.run()
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
	s.becomes(func(status *corev1.PodStatus) { status.Conditions[1].Status = corev1.ConditionTrue })
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
}

func TestMissingFinalizerIsAddedBeforeThePodIsMade(t *testing.T) {
	shadow := shadowPod()
	shadow.Finalizers = nil
	s := newStage(t, shadow)
	s.run()
	s.Home.ExpectWrites("patch ShadowPod web", "create Pod web")
	if len(s.shadow().Finalizers) != 1 {
		t.Error("the finalizer is missing")
	}
}

func TestPodDeletedBySomebodyIsRemade(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.running)
	s.run()
	first := s.pod().UID
	s.somebodyDeletes()
	s.run()
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web", "update/status ShadowPod web")
	testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, offload.ReasonRemaking)
	if phase := s.shadow().Status.Phase; phase != "Running" {
		t.Errorf("home sees phase %s", phase)
	}

	s.kubeletLetsGo()
	s.run()
	s.becomes(s.running)
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	status := s.shadow().Status
	if second := s.pod().UID; second == first || status.PodUID != second || status.Recreations != 1 || status.Restarts["c"] != 3 {
		t.Errorf("got pod %s after %s, status %+v", second, first, status)
	}
	testkit.ExpectCondition(s, status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
}

func TestEndedByItself(t *testing.T) {
	began := metav1.NewTime(testkit.Noon)
	until := metav1.NewTime(testkit.Noon.Add(30 * time.Second))
	for name, c := range map[string]struct {
		deletion *metav1.Time
		grace    *int64
		policy   corev1.RestartPolicy
		exitCode int32
		finished time.Time
		want     bool
	}{
		"an ended pod":                         {nil, nil, "Always", 0, testkit.Noon, true},
		"done within its grace":                {&until, ptr.To[int64](30), "Never", 0, testkit.Noon.Add(time.Second), true},
		"done and collected unseen":            {&began, ptr.To[int64](0), "OnFailure", 0, testkit.Noon.Add(-time.Second), true},
		"stopped by the deletion":              {&until, ptr.To[int64](30), "Always", 0, testkit.Noon.Add(time.Second), false},
		"failed by the deletion":               {&until, ptr.To[int64](30), "Never", 143, testkit.Noon.Add(time.Second), false},
		"failed in the second of the deletion": {&until, ptr.To[int64](30), "Never", 1, testkit.Noon, false},
		"ended before the deletion":            {&until, ptr.To[int64](30), "Never", 1, testkit.Noon.Add(-time.Second), true},
		"ended well before the deletion":       {&until, ptr.To[int64](30), "OnFailure", 0, testkit.Noon.Add(-time.Second), true},
		"about to restart at the deletion":     {&until, ptr.To[int64](30), "OnFailure", 1, testkit.Noon.Add(-time.Second), false},
		"crashed before the deletion":          {&until, ptr.To[int64](30), "Always", 1, testkit.Noon.Add(-time.Second), false},
		"seen only when the kubelet lets go":   {&began, ptr.To[int64](0), "Never", 1, testkit.Noon.Add(-time.Second), false},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: c.deletion, DeletionGracePeriodSeconds: c.grace},
			Spec:       corev1.PodSpec{RestartPolicy: c.policy},
			Status: corev1.PodStatus{
				Phase: map[bool]corev1.PodPhase{true: corev1.PodSucceeded, false: corev1.PodFailed}[c.exitCode == 0],
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: c.exitCode, FinishedAt: metav1.NewTime(c.finished)},
				}}},
			},
		}
		if got := endedByItself(pod); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// The API server sets the deletion to now, with no grace, when the kubelet lets a pod go.
func TestContainersEndedByADeletionAreNoCompletion(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.running)
	s.run()
	s.Clock.Step(time.Minute)
	s.somebodyDeletes()
	s.becomes(func(status *corev1.PodStatus) {
		status.Phase = corev1.PodSucceeded
		status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			FinishedAt: metav1.NewTime(s.pod().DeletionTimestamp.Add(-time.Second)),
		}}
	})
	s.run()
	if phase := s.shadow().Status.Phase; phase != "Running" {
		t.Errorf("home sees phase %s", phase)
	}
	s.kubeletLetsGo()
	s.run()
	if s.pod() == nil {
		t.Error("the pod was not made again")
	}
}

func TestCompletedPodIsNeverRunAgain(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	before := s.shadow()
	s.becomes(func(status *corev1.PodStatus) { status.Phase = corev1.PodSucceeded })
	s.run()
	s.somebodyDeletes()
	s.kubeletLetsGo()
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	if s.pod() != nil || s.shadow().Status.Phase != "Succeeded" {
		t.Errorf("got pod %v, phase %s", s.pod(), s.shadow().Status.Phase)
	}

	// The cache may still show the record of a running pod.
	s.stale = before
	s.stale.Status.PodUID = "uid-1"
	s.stale.Status.Phase = "Running"
	s.run()
	s.Home.ExpectWrites()
}

func TestPodThatItsNodeFailedIsRemade(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.running)
	s.run()
	s.becomes(func(status *corev1.PodStatus) { status.Phase, status.Reason = corev1.PodFailed, "Evicted" })
	s.run()
	if phase := s.shadow().Status.Phase; phase != "Running" {
		t.Errorf("home sees phase %s", phase)
	}
	s.kubeletLetsGo()
	s.run()
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web", "delete Pod web", "update/status ShadowPod web", "create Pod web", "update/status ShadowPod web")

	// The second one fails as well, soon: now it waits.
	s.becomes(func(status *corev1.PodStatus) { status.Phase, status.Reason = corev1.PodFailed, "OutOfcpu" })
	s.run()
	s.kubeletLetsGo()
	if again := s.run(); again != firstDelay {
		t.Errorf("looks again in %s, want %s", again, firstDelay)
	}
	if s.pod() != nil {
		t.Error("the pod was made again at once")
	}
	s.Clock.Step(firstDelay)
	s.run()
	if s.pod() == nil {
		t.Error("the pod was not made again")
	}
}

func TestPodRemadeTooOftenIsGivenUp(t *testing.T) {
	shadow := shadowPod()
	shadow.Status.PodUID = "uid-0"
	shadow.Status.Phase = "Pending"
	shadow.Status.RecreationsInARow = mostRecreations
	shadow.Status.Pod = &runtime.RawExtension{Raw: []byte(`{"phase":"Pending"}`)}
	s := newStage(t, shadow)
	s.run()
	testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, reasonRemadeTooOften)
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
}

func TestStaleCacheMakesNoSecondPod(t *testing.T) {
	s := newStage(t, shadowPod())
	s.hidden["Pod"] = true
	s.run()
	s.run()
	uid := s.pod().UID
	s.hidden["Pod"] = false
	s.becomes(s.running)
	s.run()
	s.hidden["Pod"] = true
	s.run()
	s.run()
	s.Home.ExpectWrites("create Pod web", "create Pod web", "update/status ShadowPod web")
	if s.pod().UID != uid {
		t.Error("another pod took its place")
	}
}

// long is a ShadowPod whose pod the cache does not keep.
func long() *v1alpha1.ShadowPod {
	shadow := shadowPod()
	shadow.Spec.Pod = fmt.Sprintf(`{"spec":{"containers":[{"name":"c","image":"i:1","args":[%q]}]}}`, strings.Repeat("a", keptPod))
	return shadow
}

func TestLongPodsAreReadWhenTheyAreMade(t *testing.T) {
	s := newStage(t, long())
	s.run()
	pod := s.pod()
	if pod == nil || len(pod.Spec.Containers) != 1 || len(pod.Spec.Containers[0].Args) != 1 {
		t.Fatalf("made %+v", pod)
	}
	s.becomes(s.running)
	s.run()
	s.Home.Writes()

	changed := s.shadow()
	changed.Spec.Pod = strings.Replace(changed.Spec.Pod, "i:1", "i:2", 1)
	changed.Generation++
	s.Home.Put(changed)
	s.run()
	if image := s.pod().Spec.Containers[0].Image; image != "i:2" {
		t.Errorf("it still runs %s", image)
	}
}

// The cache may be behind what is read: then the newer ShadowPod is on its way.
func TestLongPodsAreNotMadeFromAnotherShadowPod(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ShadowPod){
		"replaced": func(shadow *v1alpha1.ShadowPod) { shadow.UID = "another" },
		"changed":  func(shadow *v1alpha1.ShadowPod) { shadow.Generation++ },
		"gone":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, long())
			s.stale = long()
			s.stale.Spec.Pod = ""
			s.Home.Remove(func() *v1alpha1.ShadowPod {
				now := s.shadow()
				now.Finalizers = nil
				s.Home.Put(now)
				return now
			}())
			if change != nil {
				now := long()
				change(now)
				s.Home.Put(now)
			}
			s.Home.Writes()
			s.run()
			s.Home.ExpectWrites()
		})
	}
}
