// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestPeerIsAskedForTheEndThatSomebodyWaitsFor(t *testing.T) {
	pod := dying("job-1", 30)
	w := offloaded(t, pod)
	shadow := shadowOf(pod)
	delete(shadow.Annotations, v1alpha1.AnnotationReportEnd)
	w.put(w.Away, shadow)
	w.reconcilePod("job-1")
	if diff := cmp.Diff([]string{"remote patch ShadowPod job-1", "remote delete ShadowPod job-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestPeerIsToldOfTheEndInOneRequest(t *testing.T) {
	pod := dying("job-1", 5)
	w := offloaded(t, pod)
	shadow := shadowOf(pod)
	delete(shadow.Annotations, v1alpha1.AnnotationReportEnd)
	w.put(w.Away, shadow)
	w.reconcilePod("job-1")
	if diff := cmp.Diff([]string{"remote patch ShadowPod job-1", "remote delete ShadowPod job-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	told := w.shadow("job-1")
	if grace := told.Spec.DeletionGracePeriodSeconds; grace == nil || *grace != 5 || told.Annotations[v1alpha1.AnnotationReportEnd] == "" {
		t.Errorf("it has grace %v and annotations %v", grace, told.Annotations)
	}
}

func TestPeerThatDoesNotTellOfTheEndIsToldTheGrace(t *testing.T) {
	pod := dying("job-1", 5)
	w := offloaded(t, pod)
	shadow := shadowOf(pod)
	delete(shadow.Annotations, v1alpha1.AnnotationReportEnd)
	w.put(w.Away, shadow)
	refused := 0
	w.Away.Before(func(write testkit.Write) error {
		if write.Verb == "patch" && refused == 0 {
			refused++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "job-1", nil)
		}
		return nil
	})
	w.reconcilePod("job-1")
	if grace := w.shadow("job-1").Spec.DeletionGracePeriodSeconds; grace == nil || *grace != 5 {
		t.Errorf("it has grace %v", grace)
	}
}

// The peer keeps the end that it was asked for until home says that it knows it.
func TestPeerIsToldThatTheEndIsKnown(t *testing.T) {
	pod := dying("job-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.reconcilePod("job-1")
	w.runRemote("job-1", corev1.PodSucceeded)
	w.reconcilePod("job-1")
	if diff := cmp.Diff([]string{"home patch/status Pod job-1"}, w.wrote()); diff != "" {
		t.Errorf("before home has it, writes (-want +got):\n%s", diff)
	}
	w.reconcilePod("job-1")
	w.reconcilePod("job-1")
	if diff := cmp.Diff([]string{"remote patch ShadowPod job-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	annotations := w.shadow("job-1").Annotations
	if annotations[v1alpha1.AnnotationReportEnd] != "false" || annotations[annotationRevision] == "" {
		t.Errorf("it has annotations %v", annotations)
	}
}

func TestPeerIsToldThatNobodyWaitsForTheEnd(t *testing.T) {
	for name, forget := range map[string]func(*world, *corev1.Pod){
		"the finalizers are gone": func(w *world, pod *corev1.Pod) {
			pod.Finalizers = nil
			w.pods.client = withPod{Client: w.Home.Client, pod: pod}
		},
		"the pod is gone": func(w *world, pod *corev1.Pod) {
			pod.Finalizers = nil
			w.put(w.Home, pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := dying("job-1", 30)
			w := offloaded(t, pod)
			w.put(w.Away, shadowOf(pod))
			w.reconcilePod("job-1")
			w.runRemote("job-1", corev1.PodSucceeded)
			forget(w, w.pod("job-1"))
			w.wrote()
			w.reconcilePod("job-1")
			w.reconcilePod("job-1")
			if diff := cmp.Diff([]string{"remote patch ShadowPod job-1"}, w.wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if w.shadow("job-1").Annotations[v1alpha1.AnnotationReportEnd] != "false" {
				t.Error("the peer waits still")
			}
		})
	}
}

func TestPeerNeedNotTellAnEndThatIsKnown(t *testing.T) {
	pod := dying("job-1", 30)
	pod.Status.Phase = corev1.PodSucceeded
	w := offloaded(t, pod)
	shadow := shadowOf(pod)
	delete(shadow.Annotations, v1alpha1.AnnotationReportEnd)
	w.put(w.Away, shadow)
	w.reconcilePod("job-1")
	if diff := cmp.Diff([]string{"remote delete ShadowPod job-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestPeerThatRefusesToHearIsLeftAlone(t *testing.T) {
	pod := dying("job-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.reconcilePod("job-1")
	w.runRemote("job-1", corev1.PodSucceeded)
	w.reconcilePod("job-1")
	w.Away.Refuse("patch ShadowPod job-1", apierrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "job-1", nil))
	w.reconcilePod("job-1")
	w.forgetRemote("job-1")
	w.reconcilePod("job-1")
	if phase := w.pod("job-1").Status.Phase; phase != corev1.PodSucceeded {
		t.Errorf("phase %s", phase)
	}
}

// The provider keeps the end unasked where somebody takes the twin away.
func TestPeerWhoseTwinIsDeletedIsToldThatTheEndIsKnown(t *testing.T) {
	w := offloaded(t, podCalled("job-1"))
	w.reconcilePod("job-1")
	w.runRemote("job-1", corev1.PodRunning)
	w.reconcilePod("job-1")
	w.runRemote("job-1", corev1.PodSucceeded)
	w.terminating(false)
	w.remove(w.Away, w.shadow("job-1"))
	w.wrote()
	w.reconcilePod("job-1")
	if diff := cmp.Diff([]string{"home patch/status Pod job-1"}, w.wrote()); diff != "" {
		t.Errorf("before home has it, writes (-want +got):\n%s", diff)
	}
	w.reconcilePod("job-1")
	w.reconcilePod("job-1")
	if diff := cmp.Diff([]string{"remote patch ShadowPod job-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := w.shadow("job-1").Annotations[v1alpha1.AnnotationReportEnd]; got != "false" {
		t.Errorf("the record says %q", got)
	}
}
