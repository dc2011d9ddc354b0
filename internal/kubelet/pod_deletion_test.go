// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestHomeDeletionEndsTheRemotePodFirst(t *testing.T) {
	pod := dying("web-1", 5)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))

	w.reconcilePod("web-1")
	want := []string{"remote patch ShadowPod web-1", "remote delete ShadowPod web-1"}
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Fatalf("writes (-want +got):\n%s", diff)
	}
	if grace := w.shadow("web-1").Spec.DeletionGracePeriodSeconds; grace == nil || *grace != 5 {
		t.Errorf("grace at the peer: %v", grace)
	}

	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("while the remote pod ends, %v was written", got)
	}

	w.forgetRemote("web-1")
	w.deletes = nil
	w.reconcilePod("web-1")
	// The pod has a finalizer, so its object stays and must not look alive.
	want = []string{"home patch/status Pod web-1", "home delete Pod web-1"}
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Fatalf("writes (-want +got):\n%s", diff)
	}
	options := w.deletes[0]
	if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds != 0 {
		t.Errorf("grace at home: %v", options.GracePeriodSeconds)
	}
	if options.Preconditions == nil || *options.Preconditions.UID != pod.UID {
		t.Errorf("preconditions: %v", options.Preconditions)
	}
	if phase := w.pod("web-1").Status.Phase; phase != corev1.PodFailed {
		t.Errorf("phase %s", phase)
	}
}

// forgetRemote lets the provider's manager take its finalizer off.
func (w *world) forgetRemote(name string) {
	w.Helper()
	shadow := w.shadow(name)
	shadow.Finalizers = nil
	w.put(w.Away, shadow)
}

func TestGraceOfThePodItselfNeedsNoWrite(t *testing.T) {
	pod := dying("web-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"remote delete ShadowPod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestSecondShorterGraceIsCarried(t *testing.T) {
	pod := dying("web-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.reconcilePod("web-1")
	w.wrote()

	again := w.pod("web-1")
	again.DeletionGracePeriodSeconds = ptr.To(int64(1))
	w.pods.client = withPod{Client: w.Home.Client, pod: again}
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"remote patch ShadowPod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestGraceOfEachWayToDelete(t *testing.T) {
	for name, tc := range map[string]struct {
		grace int64
		told  bool // the peer must be told, since it is not the pod's own
	}{
		"kubectl delete":                      {30, false},
		"--grace-period=5":                    {5, true},
		"--now":                               {1, true},
		"a longer one":                        {60, true},
		"of a finalizer that holds it longer": {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := dying("web-1", tc.grace)
			w := offloaded(t, pod)
			w.put(w.Away, shadowOf(pod))
			w.reconcilePod("web-1")
			want := []string{"remote delete ShadowPod web-1"}
			if tc.told {
				want = append([]string{"remote patch ShadowPod web-1"}, want...)
			}
			if diff := cmp.Diff(want, w.wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if grace := w.shadow("web-1").Spec.DeletionGracePeriodSeconds; tc.told && (grace == nil || *grace != tc.grace) {
				t.Errorf("grace at the peer: %v", grace)
			}
		})
	}
}

// With --grace-period=0 the API server forgets the pod at once, as of any node, and so does the end of a namespace whose
// pods it deletes that way.
func TestPodThatIsForgottenAtOnceEndsAtThePeer(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.remove(w.Home, podCalled("web-1"))
	w.wrote()
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"remote patch ShadowPod web-1", "remote delete ShadowPod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if grace := w.shadow("web-1").Spec.DeletionGracePeriodSeconds; grace == nil || *grace != 0 {
		t.Errorf("the record has grace %v", grace)
	}
}

func TestPodThatIsForgottenWhileItEndsEndsAtOnce(t *testing.T) {
	pod := dying("web-1", 500)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.reconcilePod("web-1")
	w.wrote()
	forgotten := w.pod("web-1")
	forgotten.Finalizers = nil
	w.put(w.Home, forgotten)
	w.reconcilePod("web-1")
	if grace := w.shadow("web-1").Spec.DeletionGracePeriodSeconds; grace == nil || *grace != 0 {
		t.Errorf("the record has grace %v", grace)
	}
	w.wrote()
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("it is told again: %v", got)
	}
}

func TestPodsOfAnEndingNamespaceEndWithoutItsOffloading(t *testing.T) {
	pod := dying("web-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.remove(w.Home, offloading()) // the namespace controller deletes in no particular order
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"remote delete ShadowPod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	w.forgetRemote("web-1")
	w.reconcilePod("web-1")
	if got := w.wrote(); len(got) == 0 || got[len(got)-1] != "home delete Pod web-1" {
		t.Errorf("wrote %v", got)
	}
}

func TestFinalizersOfOthersLearnHowThePodEnded(t *testing.T) {
	pod := dying("job-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.reconcilePod("job-1")
	w.runRemote("job-1", corev1.PodSucceeded)
	w.reconcilePod("job-1")
	if phase := w.pod("job-1").Status.Phase; phase != corev1.PodSucceeded {
		t.Errorf("phase %s", phase)
	}
}

// readsOfRecords counts how often the peer is asked for a single record.
func (w *world) readsOfRecords() *int {
	count := new(int)
	w.Away.OnRead(func(read testkit.Read) error {
		if read.Kind == "ShadowPod" {
			*count++
		}
		return nil
	})
	return count
}

func TestPeerIsNotAskedForARecordThatWasSeenToGo(t *testing.T) {
	pod := dying("web-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	asked := w.readsOfRecords()
	w.reconcilePod("web-1")
	w.forgetRemote("web-1")
	*asked = 0
	w.wrote()
	w.reconcilePod("web-1")
	if got := w.wrote(); len(got) == 0 || got[len(got)-1] != "home delete Pod web-1" || *asked > 0 {
		t.Errorf("asked %d times, wrote %v", *asked, got)
	}
}

func TestPeerIsAskedForARecordThatWasNotSeen(t *testing.T) {
	seen := dying("web-1", 30)
	w := offloaded(t, seen)
	w.put(w.Away, shadowOf(seen))
	w.reconcilePod("web-1")
	// Another pod gets the name, and is deleted as well before anything is known of its record.
	other := dying("web-1", 30)
	other.UID = "uid-other"
	w.pods.client = withPod{Client: w.Home.Client, pod: other}
	w.forgetRemote("web-1")
	asked := w.readsOfRecords()
	w.reconcilePod("web-1")
	if *asked != 1 {
		t.Errorf("asked %d times, want once", *asked)
	}
}

func TestPodEndsAtAPeerThatDoesNotTellHow(t *testing.T) {
	pod := dying("job-1", 30)
	w := offloaded(t, pod)
	shadow := shadowOf(pod)
	delete(shadow.Annotations, v1alpha1.AnnotationReportEnd)
	w.put(w.Away, shadow)
	w.Away.Refuse("patch ShadowPod job-1", apierrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "job-1", nil))
	w.reconcilePod("job-1")
	if got := w.wrote(); len(got) == 0 || got[len(got)-1] != "remote delete ShadowPod job-1" {
		t.Errorf("wrote %v", got)
	}
}

func TestPodThatNeverWentOutIsForgotten(t *testing.T) {
	w := offloaded(t, dying("web-1", 30))
	w.reconcilePod("web-1")
	if got := w.wrote(); len(got) == 0 || got[len(got)-1] != "home delete Pod web-1" {
		t.Errorf("wrote %v", got)
	}
}

func TestDyingPodWaitsForAPeerThatDoesNotAnswer(t *testing.T) {
	w := offloaded(t, dying("web-1", 30))
	w.silence()
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestDyingPodOfDaemonSetIsForgottenWithoutThePeer(t *testing.T) {
	pod := dying("agent", 30)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "d", Controller: ptr.To(true),
	}}
	w := offloaded(t, pod)
	w.silence()
	w.reconcilePod("agent")
	if got := w.wrote(); len(got) == 0 || got[len(got)-1] != "home delete Pod agent" {
		t.Errorf("wrote %v", got)
	}
}

func TestRecordOnlyEndsWhenItsHomePodIsReallyGone(t *testing.T) {
	t.Run("the cache is behind", func(t *testing.T) {
		w := offloaded(t)
		w.put(w.Away, shadowOf(podCalled("web-1")))
		w.pods.live = withPod{Client: w.Home.Client, pod: podCalled("web-1")}
		w.reconcilePod("web-1")
		if got := w.wrote(); got != nil {
			t.Errorf("wrote %v", got)
		}
	})
	t.Run("it is gone", func(t *testing.T) {
		w := offloaded(t)
		w.put(w.Away, shadowOf(podCalled("web-1")))
		w.reconcilePod("web-1")
		w.reconcilePod("web-1")
		if diff := cmp.Diff([]string{"remote patch ShadowPod web-1", "remote delete ShadowPod web-1"}, w.wrote()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		if uid := w.deletes[0].Preconditions.UID; *uid != "shadow-web-1" {
			t.Errorf("precondition %s", *uid)
		}
	})
	t.Run("another pod has the name, on a real node", func(t *testing.T) {
		other := podCalled("web-1")
		other.UID, other.Spec.NodeName = "uid-other", "worker"
		w := offloaded(t, other)
		w.put(w.Away, shadowOf(podCalled("web-1")))
		w.reconcilePod("web-1")
		if diff := cmp.Diff([]string{"remote patch ShadowPod web-1", "remote delete ShadowPod web-1"}, w.wrote()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

// withPod is a client that reads one pod differently.
type withPod struct {
	client.Client
	pod *corev1.Pod
}

func (c withPod) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption,
) error {
	if pod, ok := object.(*corev1.Pod); ok {
		c.pod.DeepCopyInto(pod)
		return nil
	}
	return c.Client.Get(ctx, key, object, opts...)
}

// terminating has turin delete the twin of shop: its records go, each with its pod.
func (w *world) terminating(oldPeer bool) {
	w.Helper()
	m := mapping()
	m.Status.Conditions[0].Status, m.Status.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.ReasonNamespaceTerminating
	if oldPeer {
		m.Status.Twin = ""
	}
	w.put(w.Away, m)
}

// A StatefulSet makes the next pod of the name when this one is gone at home.
func TestDeletedPodStaysUntilItsRemotePodHasEndedWithTheTwin(t *testing.T) {
	for name, oldPeer := range map[string]bool{"a peer that names the twin to its end": false, "an older one": true} {
		t.Run(name, func(t *testing.T) {
			pod := dying("db-0", 30)
			w := offloaded(t, pod)
			w.put(w.Away, shadowOf(pod))
			w.terminating(oldPeer)
			w.remove(w.Away, w.shadow("db-0"))
			w.wrote()
			for range 2 {
				w.reconcilePod("db-0")
				if got := w.wrote(); got != nil {
					t.Fatalf("while the remote pod ends, %v was written", got)
				}
			}
			w.forgetRemote("db-0")
			if oldPeer {
				w.reconcilePod("db-0")
				if got := w.wrote(); got != nil {
					t.Fatalf("before the peer tells that the twin is gone, %v was written", got)
				}
				w.put(w.Away, mapping())
			}
			w.reconcilePod("db-0")
			if diff := cmp.Diff([]string{"home patch/status Pod db-0", "home delete Pod db-0"}, w.wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodWhoseTwinIsDeletedIsNotReadyAndThenFails(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	w.terminating(false)
	w.remove(w.Away, w.shadow("web-1"))
	w.reconcilePod("web-1")
	if got := w.pod("web-1"); isReady(got) || got.Status.Phase != corev1.PodRunning {
		t.Errorf("while it terminates there, it is %s, ready: %t", got.Status.Phase, isReady(got))
	}
	w.forgetRemote("web-1")
	w.reconcilePod("web-1")
	if got := w.pod("web-1").Status; got.Phase != corev1.PodFailed || got.Reason != v1alpha1.ReasonNamespaceTerminating {
		t.Errorf("when it is gone there, it is %s, %s", got.Phase, got.Reason)
	}
}

// The cache may be behind what home itself wrote: that the pod failed with its twin.
func TestPodThatHasFailedIsNotMadeInTheNextTwin(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	running := w.pod("web-1")
	w.terminating(false)
	w.remove(w.Away, w.shadow("web-1"))
	w.forgetRemote("web-1")
	w.reconcilePod("web-1")
	w.put(w.Away, mapping())
	w.wrote()
	w.pods.client = withPod{Client: w.Home.Client, pod: running}
	_, _ = w.pods.Reconcile(t.Context(), request{Peer: turin, Namespace: "shop", Name: "web-1"}) // it waits for the cache
	if got := w.wrote(); got != nil {
		t.Errorf("%v was written", got)
	}
}

// Whatever made it run: the controller of the pod has replaced it.
func TestWhatRunsForAnEndedPodIsStopped(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	pod := w.pod("web-1")
	pod.Status.Phase = corev1.PodFailed
	w.put(w.Home, pod)
	w.runRemote("web-1", corev1.PodRunning)
	w.wrote()
	w.reconcilePod("web-1")
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"remote patch ShadowPod web-1", "remote delete ShadowPod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}
