// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestDeletionWaitsForThePodAndCarriesTheGrace(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.homeDeletes(ptr.To[int64](30))
	s.run()
	pod := s.pod()
	pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
	s.Home.Put(pod)
	s.run()
	s.Home.ExpectWrites("create Pod web", "delete Pod web")

	s.homeDeletes(ptr.To[int64](5))
	s.run()
	s.Home.ExpectWrites("delete Pod web")
	if len(s.grace) != 2 || *s.grace[0] != 30 || *s.grace[1] != 5 {
		t.Errorf("deleted with grace %v", s.grace)
	}

	s.kubeletLetsGo()
	s.run()
	s.Home.ExpectWrites("patch ShadowPod web")
	if s.Home.Find(&v1alpha1.ShadowPod{}, s.twin, "web") {
		t.Error("the ShadowPod is still there")
	}
}

func TestEndIsToldWhereHomeWaitsForIt(t *testing.T) {
	for annotation, want := range map[string]string{"": string(corev1.PodRunning), "true": string(corev1.PodFailed)} {
		shadow := shadowPod()
		shadow.Status.Phase = string(corev1.PodRunning)
		s := newStage(t, shadow)
		s.run()
		s.homeDeletes(ptr.To[int64](30))
		asking := s.shadow()
		asking.Annotations = map[string]string{v1alpha1.AnnotationReportEnd: annotation}
		s.Home.Put(asking)
		s.run()
		pod := s.pod()
		pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
		s.Home.Put(pod)
		pod.Status.Phase = corev1.PodFailed
		if err := s.Home.Server.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		s.run()
		told := &v1alpha1.ShadowPod{}
		if !s.Home.Find(told, s.twin, "web") || told.Status.Phase != want {
			t.Errorf("with annotation %q the record says %q, want %q", annotation, told.Status.Phase, want)
		}
	}
}

func TestDeletionLooksForAPodThatTheCacheDoesNotShow(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.hidden["Pod"] = true
	s.homeDeletes(nil)
	s.run()
	s.Home.ExpectWrites("create Pod web", "delete Pod web")
	if s.grace[0] != nil {
		t.Error("the pod's own grace was overruled")
	}
}

func TestForeignPodIsNotTouched(t *testing.T) {
	theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: lubeck.name(), UID: "theirs", Finalizers: []string{kubeletHolds}}}
	for name, hidden := range map[string]bool{"seen": false, "not seen yet": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, shadowPod(), theirs.DeepCopy())
			s.hidden["Pod"] = hidden
			s.run()
			s.run()
			testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionFalse, v1alpha1.ReasonPodNameTaken)
			s.homeDeletes(ptr.To[int64](0))
			s.run()
			if s.pod() == nil || s.pod().UID != "theirs" || !s.pod().DeletionTimestamp.IsZero() {
				t.Error("the foreign pod was touched")
			}
			if s.Home.Find(&v1alpha1.ShadowPod{}, s.twin, "web") {
				t.Error("the ShadowPod is still there")
			}
		})
	}
}

func TestPodOfAnEarlierShadowPodIsForeign(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	later := shadowPod()
	later.UID = types.UID("later")
	if madeFor(later, s.pod()) {
		t.Error("a pod of another record counts as ours")
	}
}

func TestNothingIsMadeInANamespaceThatEnds(t *testing.T) {
	s := newStage(t, shadowPod())
	ns := &corev1.Namespace{}
	s.Home.Find(ns, "", s.twin)
	ns.Finalizers = []string{"test/held"}
	s.Home.Put(ns)
	s.Home.Remove(ns)
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
	testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, v1alpha1.ReasonNamespaceTerminating)
}

func TestShadowPodOutsideATwinIsLeftAlone(t *testing.T) {
	shadow := shadowPod()
	shadow.Namespace = "default"
	w := newWorld(t, shadow, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	w.Reconcile(newShadowPodReconciler(w.config(), w.Home.Client, w.Home.Server, w.Home.Server), "default", "web")
	w.Home.ExpectWrites()
}

func TestChangedImageIsCarriedOver(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.running)
	s.run()
	uid := s.pod().UID
	shadow := s.shadow()
	shadow.Generation = 2
	shadow.Spec.Pod = `{"metadata":{"labels":{"track":"new"}},"spec":{"containers":[{"name":"c","image":"i:2"}]}}`
	s.Home.Put(shadow)
	s.run()
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web", "patch Pod web", "update/status ShadowPod web")
	if pod := s.pod(); pod.UID != uid || pod.Spec.Containers[0].Image != "i:2" || pod.Labels["track"] != "new" {
		t.Errorf("got pod %v", pod)
	}
}

func TestConflictingStatusIsNoError(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	old := s.shadow()
	shadow := s.shadow()
	shadow.Labels = map[string]string{"a": "b"}
	s.Home.Put(shadow)
	s.becomes(s.running)
	s.stale = old
	s.run()
	if s.shadow().Status.Phase != "" {
		t.Error("an old copy was written")
	}
	s.stale = nil
	s.run()
	if s.shadow().Status.Phase != "Running" {
		t.Error("the status was not written with the new copy")
	}
}

func TestBackOff(t *testing.T) {
	for _, c := range []struct {
		recreations int32
		lived       time.Duration
		want        time.Duration
		ok          bool
	}{
		{0, 0, 0, true},
		{1, 0, time.Second, true},
		{2, 0, 2 * time.Second, true},
		{9, 0, 256 * time.Second, true},
		{12, 0, longestDelay, true},
		{12, longLife, 0, true},
		{mostRecreations, 0, 0, false},
		{mostRecreations, longLife, 0, true},
	} {
		if got, ok := backOff(c.recreations, c.lived); got != c.want || ok != c.ok {
			t.Errorf("%d, %s: got %s, %t, want %s, %t", c.recreations, c.lived, got, ok, c.want, c.ok)
		}
	}
}

// once is a ShadowPod whose pod runs to its end.
func once() *v1alpha1.ShadowPod {
	shadow := shadowPod()
	shadow.Spec.Pod = `{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i:1"}]}}`
	return shadow
}

func succeeded(status *corev1.PodStatus) { status.Phase = corev1.PodSucceeded }

// collected is a pod that succeeded and was deleted while nobody looked.
func (s *stage) collected() {
	s.Helper()
	s.becomes(succeeded)
	s.somebodyDeletes()
	s.kubeletLetsGo()
}

func TestEndThatNobodySawIsRecordedBeforeThePodGoes(t *testing.T) {
	s := newStage(t, once())
	s.run()
	s.becomes(s.running)
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	s.collected()
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
	if s.pod() == nil || s.shadow().Status.Phase != "Succeeded" {
		t.Fatalf("got pod %v, phase %s", s.pod(), s.shadow().Status.Phase)
	}
	s.run()
	s.run()
	s.Home.ExpectWrites("patch Pod web")
	if s.pod() != nil {
		t.Error("the pod is held though its end is on record")
	}
}

func TestPodIsLetGoBeforeHomeDeletesIt(t *testing.T) {
	s := newStage(t, once())
	s.run()
	s.becomes(succeeded)
	s.run()
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web", "patch Pod web")
	s.homeDeletes(nil)
	s.run()
	s.kubeletLetsGo()
	s.run()
	s.Home.ExpectWrites("delete Pod web", "patch ShadowPod web")
}

func TestPodThatHomeDeletesIsHeldWhereSomebodyWaitsForItsEnd(t *testing.T) {
	for annotation, want := range map[string][]string{
		"":     {"patch Pod web"}, // as soon as it is being deleted
		"true": {"update/status ShadowPod web", "patch Pod web"},
	} {
		s := newStage(t, once())
		s.run()
		s.becomes(s.running)
		s.run()
		s.homeDeletes(ptr.To[int64](30))
		asking := s.shadow()
		asking.Annotations = map[string]string{v1alpha1.AnnotationReportEnd: annotation}
		s.Home.Put(asking)
		s.run()
		s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web", "delete Pod web")
		testkit.Change(s.Home, s.twin, "web", func(pod *corev1.Pod) {
			pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
			pod.Status.Phase = corev1.PodSucceeded
		})
		s.run()
		s.run()
		s.Home.ExpectWrites(want...)
		s.kubeletLetsGo()
		s.homeHasHeard()
		s.run()
		s.Home.ExpectWrites("patch ShadowPod web")
	}
}

// homeHasHeard has home say that it knows the end.
func (s *stage) homeHasHeard() {
	s.Helper()
	shadow := s.shadow()
	shadow.Annotations = map[string]string{v1alpha1.AnnotationReportEnd: "false"}
	s.Home.Put(shadow)
}

// toldEnd is a stage whose pod home has deleted, and that has ended, with that on record. The pod may be gone, or not.
func toldEnd(t *testing.T, asked bool) *stage {
	t.Helper()
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.running)
	s.run()
	s.homeDeletes(ptr.To[int64](30))
	if asked {
		asking := s.shadow()
		asking.Annotations = map[string]string{v1alpha1.AnnotationReportEnd: "true"}
		s.Home.Put(asking)
	}
	s.run()
	s.Clock.Step(time.Minute)
	testkit.Change(s.Home, s.twin, "web", func(pod *corev1.Pod) {
		pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
		pod.Status.Phase, pod.Status.Conditions[1].Status = corev1.PodFailed, corev1.ConditionFalse
	})
	s.run()
	return s
}

// gone says whether the ShadowPod is.
func (s *stage) gone() bool {
	s.Helper()
	return !s.Home.Find(&v1alpha1.ShadowPod{}, s.twin, "web")
}

func TestRecordedEndIsKeptUntilHomeHasHeardIt(t *testing.T) {
	s := toldEnd(t, true)
	s.kubeletLetsGo()
	again := s.run()
	if s.pod() != nil || s.gone() || s.shadow().Status.Phase != string(corev1.PodFailed) {
		t.Fatal("the pod is kept, or its end is not")
	}
	if again <= 0 || again > endKept {
		t.Errorf("it is looked at again in %s", again)
	}
	s.homeHasHeard()
	s.run()
	if !s.gone() {
		t.Error("home has heard the end, and it is kept")
	}
}

// An older home never says that it has heard, and one that is cut off or gone cannot.
func TestRecordedEndIsKeptForAWhileAtMost(t *testing.T) {
	s := toldEnd(t, true)
	s.kubeletLetsGo()
	s.Clock.Step(endKept - time.Second)
	s.pods = newShadowPodReconciler(s.config(), s.Home.Client, s.Home.Server, s.Home.Server) // a restart
	if s.run(); s.gone() {
		t.Fatal("it is gone already")
	}
	s.Clock.Step(time.Second)
	if s.run(); !s.gone() {
		t.Error("it is kept for ever")
	}
}

func TestTimeToHearBeginsWhenTheEndIsRecorded(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(func(status *corev1.PodStatus) {
		s.running(status)
		status.Conditions[1].Status = corev1.ConditionFalse // it was never ready
	})
	s.run()
	s.Clock.Step(time.Hour)
	s.becomes(func(status *corev1.PodStatus) { status.Phase, status.Conditions = corev1.PodFailed, nil })
	s.run()
	asking := s.shadow()
	asking.Annotations = map[string]string{v1alpha1.AnnotationReportEnd: "true"}
	s.Home.Put(asking)
	s.homeDeletes(nil)
	s.run()
	s.kubeletLetsGo()
	if s.run(); s.gone() {
		t.Error("it is gone as soon as it is recorded")
	}
}

func TestEndIsNotKeptWhereNobodyHears(t *testing.T) {
	t.Run("not asked for", func(t *testing.T) {
		s := toldEnd(t, false)
		s.kubeletLetsGo()
		if s.run(); !s.gone() {
			t.Error("it is kept")
		}
	})
	t.Run("in a twin that home gives up", func(t *testing.T) {
		s := toldEnd(t, false)
		s.namespaceEnds()
		s.kubeletLetsGo()
		if s.run(); !s.gone() {
			t.Error("it is kept")
		}
	})
}

func TestPodWithoutARecordIsLetGo(t *testing.T) {
	s := newStage(t, once())
	s.run()
	testkit.Change(s.Home, s.twin, "web", func(shadow *v1alpha1.ShadowPod) { shadow.Finalizers = nil })
	s.hidden["ShadowPod"] = true // by the cache alone
	s.Home.Writes()
	s.run()
	s.Home.ExpectWrites()
	s.hidden["ShadowPod"] = false
	s.Home.Remove(s.shadow())
	s.run()
	s.Home.ExpectWrites("patch Pod web")
}
