// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func limited(name corev1.ResourceName, limit string) *v1alpha1.Peer {
	p := peer()
	p.Generation = 1
	p.Spec.Limits = &v1alpha1.PeerLimits{Resources: corev1.ResourceList{name: resource.MustParse(limit)}}
	return p
}

// asking returns a ShadowPod whose pod asks for so much cpu.
func asking(name, cpu string) *v1alpha1.ShadowPod {
	shadow := shadowPod()
	shadow.Name, shadow.UID = name, types.UID("shadow-"+name)
	shadow.Spec.Pod = fmt.Sprintf(
		`{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":%q}}}]}}`, cpu)
	return shadow
}

func (s *stage) runOf(name string) time.Duration {
	s.Helper()
	return s.Reconcile(s.pods, s.twin, name).RequeueAfter
}

func (s *stage) has(name string) bool {
	s.Helper()
	return s.Home.Find(&corev1.Pod{}, s.twin, name)
}

func (s *stage) expectHeld(name, reason string, words ...string) {
	s.Helper()
	shadow := &v1alpha1.ShadowPod{}
	s.Home.Find(shadow, s.twin, name)
	testkit.ExpectCondition(s, shadow.Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionFalse, reason)
	c := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionScheduled)
	for _, word := range words {
		if c != nil && !strings.Contains(c.Message, word) {
			s.Errorf("message %q lacks %q", c.Message, word)
		}
	}
	if meta.IsStatusConditionTrue(shadow.Status.Conditions, v1alpha1.ConditionUnrecoverable) {
		s.Error("it was given up")
	}
	if s.has(name) {
		s.Error("it has a pod")
	}
}

// changes lets the controller see the pod as its watch does.
func (s *stage) changes(name string, change func(*corev1.Pod)) {
	s.Helper()
	pod := &corev1.Pod{}
	if !s.Home.Find(pod, s.twin, name) {
		s.Fatal("there is no pod")
	}
	change(pod)
	if err := s.Home.Server.Status().Update(s.Context(), pod); err != nil {
		s.Fatal(err)
	}
	s.pods.podChanged(s.Context(), pod)
}

func (s *stage) limit(name corev1.ResourceName, to string) {
	s.Helper()
	p := &v1alpha1.Peer{}
	s.Home.Find(p, "", "lubeck")
	p.Spec.Limits = &v1alpha1.PeerLimits{Resources: corev1.ResourceList{name: resource.MustParse(to)}}
	s.Home.Put(p)
}

func TestPodBeyondTheLimitWaitsForAnotherToEnd(t *testing.T) {
	s := newStageOf(t, limited("cpu", "1"), asking("first", "600m"), asking("second", "600m"), asking("small", "400m"))
	s.runOf("first")
	if again := s.runOf("second"); again != 0 {
		t.Errorf("it looks again in %s", again)
	}
	s.runOf("second")
	s.expectHeld("second", v1alpha1.ReasonLimitExceeded, "600m of cpu", "limit of 1")
	s.runOf("small")
	s.Home.ExpectWrites("create Pod first", "update/status ShadowPod second", "create Pod small")
	if len(*s.woken) > 0 {
		t.Errorf("woken too early: %v", *s.woken)
	}

	s.changes("first", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	s.runOf("first")
	if diff := cmp.Diff(woken{"second"}, *s.woken); diff != "" {
		t.Errorf("woken: -want +got:\n%s", diff)
	}
	s.runOf("second")
	if !s.has("second") {
		t.Error("it has no pod")
	}
}

func TestPodOfAnEndedHomePodMakesRoom(t *testing.T) {
	s := newStageOf(t, limited("pods", "1"), shadowPod(), asking("second", "0"))
	s.run()
	s.runOf("second")
	s.expectHeld("second", v1alpha1.ReasonLimitExceeded, "1 of pods")
	s.homeDeletes(nil)
	s.run()
	s.kubeletLetsGo()
	s.run()
	s.run()
	if diff := cmp.Diff(woken{"second"}, *s.woken); diff != "" {
		t.Errorf("woken: -want +got:\n%s", diff)
	}
}

func TestPodLargerThanTheLimitWaitsForAnother(t *testing.T) {
	s := newStageOf(t, limited("cpu", "1"), asking("huge", "8"))
	s.runOf("huge")
	s.expectHeld("huge", v1alpha1.ReasonLimitExceeded, "more than the provider's whole limit of 1")
	s.limit("cpu", "8")
	requests := s.pods.waitingOf(t.Context(), peer())
	if diff := cmp.Diff(requestFor(s.twin, "huge"), requests); diff != "" {
		t.Errorf("looked at again: -want +got:\n%s", diff)
	}
	s.runOf("huge")
	if !s.has("huge") || len(s.pods.waitingOf(t.Context(), peer())) != 0 {
		t.Error("it still waits")
	}
}

func TestRemadePodKeepsItsPlace(t *testing.T) {
	s := newStageOf(t, limited("cpu", "600m"), asking("web", "600m"), asking("second", "600m"))
	s.run()
	s.becomes(s.running)
	s.run()
	s.runOf("second")
	s.somebodyDeletes()
	s.run()
	s.kubeletLetsGo()
	s.runOf("second")
	s.expectHeld("second", v1alpha1.ReasonLimitExceeded)
	s.run()
	if !s.has("web") {
		t.Error("it was not made again")
	}
}

func TestTwoThatNoLongerFitTogetherDoNotBlockEachOther(t *testing.T) {
	s := newStageOf(t, limited("cpu", "2"), asking("a", "1"), asking("b", "1"))
	for _, name := range []string{"a", "b"} {
		s.runOf(name)
		s.changes(name, func(pod *corev1.Pod) { s.running(&pod.Status) })
		s.runOf(name)
	}
	s.limit("cpu", "1")
	for _, name := range []string{"a", "b"} {
		pod := &corev1.Pod{}
		s.Home.Find(pod, s.twin, name)
		pod.Finalizers = nil
		s.Home.Put(pod)
		s.Home.Remove(pod)
	}
	s.runOf("a")
	s.expectHeld("a", v1alpha1.ReasonLimitExceeded)
	s.runOf("b")
	if !s.has("b") {
		t.Error("neither was made")
	}
}

func TestAccess(t *testing.T) {
	for access, reason := range map[v1alpha1.PeerAccess]string{
		v1alpha1.AccessCordoned:  v1alpha1.ReasonPeerCordoned,
		v1alpha1.AccessDraining:  v1alpha1.ReasonPeerDraining,
		v1alpha1.AccessSuspended: v1alpha1.ReasonPeerSuspended,
	} {
		t.Run(string(access), func(t *testing.T) {
			s := newStageOf(t, peer(), shadowPod(), asking("second", "1"))
			s.run()
			s.becomes(s.running)
			s.run()

			p := &v1alpha1.Peer{}
			s.Home.Find(p, "", "lubeck")
			p.Spec.Access = access
			s.Home.Put(p)
			s.runOf("second")
			s.expectHeld("second", reason)
			s.somebodyDeletes()
			s.run()
			s.kubeletLetsGo()
			s.run()
			if !s.has("web") {
				t.Error("what ran was not made again")
			}

			p.Spec.Access = v1alpha1.AccessOpen
			s.Home.Put(p)
			if diff := cmp.Diff(requestFor(s.twin, "second"), s.pods.waitingOf(t.Context(), p)); diff != "" {
				t.Errorf("looked at again: -want +got:\n%s", diff)
			}
			s.runOf("second")
			if !s.has("second") {
				t.Error("it was not made")
			}
		})
	}
}

func TestPodOfAPeerThatPartsIsNotBegun(t *testing.T) {
	parting := peer()
	parting.DeletionTimestamp, parting.Finalizers = &metav1.Time{Time: testkit.Noon}, []string{v1alpha1.FinalizerPeer}
	s := newStageOf(t, parting, shadowPod())
	s.run()
	s.expectHeld("web", v1alpha1.ReasonParting)
}

func TestQuotaThatDoesNotTakeAPodIsNotForGood(t *testing.T) {
	for text, reason := range map[string]string{
		"status unknown for quota: hanse, resources: pods":                          v1alpha1.ReasonPending,
		"exceeded quota: hanse, requested: pods=1, used: pods=10, limited: pods=10": v1alpha1.ReasonLimitExceeded,
	} {
		t.Run(reason, func(t *testing.T) {
			s := newStageOf(t, limited("pods", "1"), shadowPod(), asking("second", "1"))
			allow := s.Home.Refuse("create Pod", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New(text)))
			if again := s.run(); again != refusedAtLeast {
				t.Errorf("looks again in %s", again)
			}
			s.runOf("second")
			s.expectHeld("second", v1alpha1.ReasonLimitExceeded)
			s.Clock.Step(time.Hour)
			if again := s.run(); again != quotaRetryAtMost {
				t.Errorf("looks again in %s", again)
			}
			s.expectHeld("web", reason)
			if diff := cmp.Diff(woken{"second"}, *s.woken); diff != "" {
				t.Errorf("its place is still taken: -want +got:\n%s", diff)
			}
			allow()
			s.run()
			if !s.has("web") {
				t.Error("it has no pod")
			}
		})
	}
}

func TestPodThatIsRefusedLeavesNoTrace(t *testing.T) {
	s := newStageOf(t, limited("pods", "1"), shadowPod())
	allow := s.Home.Refuse("create Pod", forbidden403())
	s.run()
	allow()
	s.Home.Refuse("create Pod", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil))
	s.run()
	if l := s.pods.ledger; len(l.accounts)+len(l.used)+len(l.waiting) != 0 {
		t.Errorf("got ledger %+v", l)
	}
}

// podOfRecord returns a pod in the namespace that a ShadowPod of its name owns.
func podOfRecord(namespace, name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, OwnerReferences: testkit.OwnedByShadowPod(name, "u")},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func TestLedgerCountsThePodsThatThereAreAtStart(t *testing.T) {
	s := newStageOf(t, limited("pods", "2"), shadowPod(), asking("second", "1"), testkit.TwinNamespace("elsewhere", "lubeck"))
	stranger := podOfRecord("elsewhere", "stranger", corev1.PodRunning)
	stranger.SetOwnerReferences(nil)
	for _, o := range []client.Object{
		stranger, podOfRecord("elsewhere", "running", corev1.PodRunning), podOfRecord("elsewhere", "done", corev1.PodSucceeded),
	} {
		s.pods.podChanged(t.Context(), o)
	}
	s.run()
	s.runOf("second")
	if !s.has("web") {
		t.Error("pods count that do not")
	}
	s.expectHeld("second", v1alpha1.ReasonLimitExceeded)
}

// A local tenant can label its pods as it likes, and name any owner.
func TestPodsOutsideTwinsUseUpNoLimit(t *testing.T) {
	local := testkit.Namespace("local", map[string]string{v1alpha1.LabelPeer: "lubeck"})
	s := newStageOf(t, limited("pods", "1"), shadowPod(), local)
	for _, namespace := range []string{"local", "gone"} {
		posing := podOfRecord(namespace, "posing", corev1.PodRunning)
		posing.Labels = map[string]string{v1alpha1.LabelPeer: "lubeck", v1alpha1.LabelHomeUID: "u"}
		s.pods.podChanged(t.Context(), posing)
	}
	s.run()
	if !s.has("web") {
		t.Error("an honest pod finds the limit used up")
	}
}
