// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// homeChanges changes the pod at home.
func (s *stage) homeChanges(pod string) {
	s.Helper()
	shadow := s.shadow()
	shadow.Generation++
	shadow.Spec.Pod = pod
	s.Home.Put(shadow)
}

// runningStage is a stage on which a pod that asks for so much cpu runs.
func runningStage(t *testing.T, of *v1alpha1.Peer, cpu string) *stage {
	t.Helper()
	s := newStageOf(t, of, asking("web", cpu))
	s.run()
	s.becomes(s.running)
	s.run()
	s.Home.Writes()
	s.Clock.Step(time.Minute)
	return s
}

func askingFor(cpu string) string {
	return fmt.Sprintf(`{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":%q}}}]}}`, cpu)
}

func (s *stage) cpu() string {
	s.Helper()
	return s.pod().Spec.Containers[0].Resources.Requests.Cpu().String()
}

// expectRefused compares the condition that is only there when a change is not carried over.
func (s *stage) expectRefused(kind, reason, words string) {
	s.Helper()
	c := meta.FindStatusCondition(s.shadow().Status.Conditions, kind)
	switch {
	case reason == "" && c != nil:
		s.Errorf("got condition %+v", c)
	case reason != "" && (c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, words)):
		s.Errorf("got condition %+v, want %s with %q", c, reason, words)
	}
}

func TestResizeIsCarriedOver(t *testing.T) {
	s := runningStage(t, limited("cpu", "2"), "500m")
	s.homeChanges(askingFor("1500m"))
	s.run()
	s.run()
	s.Home.ExpectWrites("patch/resize Pod web", "patch Pod web", "update/status ShadowPod web")
	s.expectRefused(v1alpha1.ConditionUpdated, "", "")
	if got := s.cpu(); got != "1500m" || s.shadow().Status.ObservedGeneration != 2 {
		t.Errorf("it asks for %s, status %+v", got, s.shadow().Status)
	}
	if used := s.pods.ledger.used["lubeck"]; used.Cpu().String() != "1500m" {
		t.Errorf("the ledger counts %v", used)
	}
}

func TestResizeNeedsRoom(t *testing.T) {
	s := newStageOf(t, limited("cpu", "2"), asking("web", "500m"), asking("other", "1"))
	s.run()
	s.runOf("other")
	s.becomes(s.running)
	s.run()
	s.Home.Writes()
	s.Clock.Step(time.Minute)
	s.homeChanges(askingFor("1500m"))
	if again := s.run(); again != quotaRetryAtMost {
		t.Errorf("looks again in %s", again)
	}
	s.Home.ExpectWrites("update/status ShadowPod web")
	s.expectRefused(v1alpha1.ConditionUpdated, v1alpha1.ReasonLimitExceeded, "it runs on with what it has")
	if used := s.pods.ledger.used["lubeck"]; s.cpu() != "500m" || used.Cpu().String() != "1500m" {
		t.Errorf("it asks for %s, and the ledger counts %v", s.cpu(), used)
	}
	s.run()
	s.Home.ExpectWrites()

	s.pods.ledger.leave(requestFor(s.twin, "other")[0].NamespacedName)
	s.Clock.Step(quotaRetryAtMost)
	s.run()
	s.Home.ExpectWrites("patch/resize Pod web", "patch Pod web", "update/status ShadowPod web")
	s.expectRefused(v1alpha1.ConditionUpdated, "", "")
}

func TestSmallerPodMakesRoomOnceItIsSeenToBe(t *testing.T) {
	s := newStageOf(t, limited("cpu", "2"), asking("web", "1500m"), asking("other", "1"))
	s.run()
	s.runOf("other")
	s.expectHeld("other", v1alpha1.ReasonLimitExceeded)
	s.homeChanges(askingFor("500m"))
	*s.woken = nil
	s.run()
	s.pods.podChanged(t.Context(), s.pod())
	if len(*s.woken) == 0 || (*s.woken)[0] != "other" {
		t.Errorf("woke %v", *s.woken)
	}
	s.runOf("other")
	if !s.has("other") {
		t.Error("the other was not made")
	}
}

func TestResizeThatTheAPIServerRefuses(t *testing.T) {
	exceeded := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", fmt.Errorf("exceeded quota: hanse"))
	for name, c := range map[string]struct {
		err    error
		reason string
		again  time.Duration
	}{
		"because of a quota": {exceeded, v1alpha1.ReasonLimitExceeded, quotaRetryAtMost},
		"by a guard rail":    {forbidden403(), v1alpha1.ReasonPodRefused, 0},
		"since it cannot be": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), v1alpha1.ReasonPodRefused, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := runningStage(t, limited("cpu", "2"), "500m")
			s.Home.Refuse("patch/resize Pod", c.err)
			s.homeChanges(askingFor("1"))
			if again := s.run(); again != c.again {
				t.Errorf("looks again in %s", again)
			}
			s.Home.ExpectWrites("patch/resize Pod web", "update/status ShadowPod web")
			s.expectRefused(v1alpha1.ConditionUpdated, c.reason, "")
			if used := s.pods.ledger.used["lubeck"]; used.Cpu().String() != "500m" {
				t.Errorf("the ledger counts %v", used)
			}
		})
	}
}

const withShell = `{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"500m"}}}],` +
	`"ephemeralContainers":[{"name":"shell","image":"busybox"}]}}`

func TestDebuggingNeedsTheProvidersLeave(t *testing.T) {
	s := runningStage(t, peer(), "500m")
	s.homeChanges(withShell)
	s.run()
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
	s.expectRefused(v1alpha1.ConditionDebug, v1alpha1.ReasonDebugForbidden, "spec.allowDebug")
	s.expectRefused(v1alpha1.ConditionUpdated, "", "")
	if len(s.pod().Spec.EphemeralContainers) != 0 {
		t.Error("it was added")
	}
}

func TestEphemeralContainersAreAdded(t *testing.T) {
	open := peer()
	open.Spec.AllowDebug = true
	s := runningStage(t, open, "500m")
	s.homeChanges(withShell)
	s.run()
	s.run()
	s.Home.ExpectWrites("patch/ephemeralcontainers Pod web", "update/status ShadowPod web")
	s.expectRefused(v1alpha1.ConditionDebug, "", "")
	added := s.pod().Spec.EphemeralContainers
	if len(added) != 1 || added[0].Name != "shell" || added[0].SecurityContext == nil {
		t.Errorf("got %+v", added)
	}

	// The same ones are not added again when something else changes.
	s.homeChanges(strings.Replace(withShell, `"image":"i"`, `"image":"i:2"`, 1))
	s.run()
	s.run()
	s.Home.ExpectWrites("patch Pod web", "update/status ShadowPod web")
}

func TestGuardRailStandsAgainstAShell(t *testing.T) {
	open := peer()
	open.Spec.AllowDebug = true
	s := runningStage(t, open, "500m")
	s.Home.Refuse("patch/ephemeralcontainers Pod", forbidden403())
	s.homeChanges(withShell)
	s.run()
	s.run()
	s.Home.ExpectWrites("patch/ephemeralcontainers Pod web", "update/status ShadowPod web")
	s.expectRefused(v1alpha1.ConditionDebug, v1alpha1.ReasonPodRefused, "PodSecurity")
}

// A pod is as its ShadowPod wants it when it is made, so nothing is compared then.
func TestNewPodIsNotChanged(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	seen := &observation{shadow: s.shadow(), pod: s.pod(), now: s.Clock.Now()}
	s.pods.recall(seen)
	if next := decide(seen); next.action != leavePod {
		t.Errorf("action %d", next.action)
	}
	seen.upToDate = false // as another process sees it
	if next := decide(seen); next.action != updatePod {
		t.Errorf("action %d", next.action)
	}
	s.homeWants("i:2")
	s.run()
	if image := s.pod().Spec.Containers[0].Image; image != "i:2" {
		t.Errorf("it runs %s", image)
	}
}

func cpuOf(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

// webhookAndAutoscaler change the pod as software of the provider does.
func (s *stage) webhookAndAutoscaler() {
	s.Helper()
	testkit.Change(s.Home, s.twin, "web", func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.Image, c.Resources.Requests = "mirror/i", cpuOf("700m")
	})
}

func labelled(labels string) string {
	return `{"metadata":{"labels":{` + labels + `}},` + strings.TrimPrefix(askingFor("500m"), "{")
}

func TestLabelAtHomePutsNothingBack(t *testing.T) {
	s := runningStage(t, limited("cpu", "2"), "500m")
	s.webhookAndAutoscaler()
	s.homeChanges(labelled(`"a":"1","b":"1"`))
	s.run()
	s.Home.ExpectWrites("patch Pod web", "update/status ShadowPod web")
	s.homeChanges(labelled(`"a":"1"`))
	s.run()
	pod := s.pod()
	if _, still := pod.Labels["b"]; still || pod.Labels["a"] != "1" {
		t.Errorf("got labels %v", pod.Labels)
	}
	if c := pod.Spec.Containers[0]; c.Image != "mirror/i" || c.Resources.Requests.Cpu().String() != "700m" {
		t.Errorf("it was put back: %s, %v", c.Image, c.Resources)
	}
}

// A manager that has just started does not know whether the pod is as the ShadowPod wants it.
func TestRestartOfTheManagerPutsNothingBack(t *testing.T) {
	s := newStageOf(t, limited("cpu", "2"), asking("web", "500m"))
	s.run()
	s.webhookAndAutoscaler()
	s.pods.notes.Clear()
	s.Home.Writes()
	s.run()
	s.Home.ExpectWrites()
}

// What the limits have no room for is not carried over, and all else is.
func TestLabelIsCarriedOverWhereTheSizeIsNot(t *testing.T) {
	s := runningStage(t, limited("cpu", "1"), "500m")
	s.homeChanges(strings.Replace(labelled(`"a":"1"`), "500m", "1500m", 1))
	s.run()
	s.Home.ExpectWrites("patch Pod web", "update/status ShadowPod web")
	s.Clock.Step(quotaRetryAtMost)
	s.run()
	s.Home.ExpectWrites()
	s.expectRefused(v1alpha1.ConditionUpdated, v1alpha1.ReasonLimitExceeded, "")
	s.homeChanges(labelled(""))
	s.run()
	if pod := s.pod(); len(pod.Labels["a"]) > 0 || s.cpu() != "500m" {
		t.Errorf("got labels %v, cpu %s", pod.Labels, s.cpu())
	}
	s.expectRefused(v1alpha1.ConditionUpdated, "", "")
}

func TestDeadlineOfARunningPodIsCarriedOver(t *testing.T) {
	s := runningStage(t, limited("cpu", "2"), "500m")
	s.homeChanges(strings.Replace(askingFor("500m"), `{"spec":{`, `{"spec":{"activeDeadlineSeconds":60,`, 1))
	s.run()
	s.Home.ExpectWrites("patch Pod web", "update/status ShadowPod web")
	if got := s.pod().Spec.ActiveDeadlineSeconds; ptr.Deref(got, 0) != 60 {
		t.Errorf("got %v", got)
	}
}

func TestHomeIsToldWhichLabelsAndAnnotationsAreLeftOut(t *testing.T) {
	shadow := shadowPod()
	shadow.Spec.Pod = `{"metadata":{"labels":{"app":"web","sidecar.istio.io/inject":"true"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`
	s := newStage(t, shadow)
	s.run()
	s.becomes(s.running)
	s.run()
	if got := s.pod().Labels; got["app"] != "web" || got["sidecar.istio.io/inject"] != "" {
		t.Errorf("the pod has labels %v", got)
	}
	s.expectRefused(v1alpha1.ConditionMetadata, v1alpha1.ReasonMetadataLeftOut, "left out sidecar.istio.io/inject")
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")

	s.homeChanges(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`)
	s.run()
	s.run()
	s.expectRefused(v1alpha1.ConditionMetadata, "", "")

	s.pods.config.PodMetadata = []string{"sidecar.istio.io/*"}
	s.homeChanges(shadow.Spec.Pod)
	s.run()
	s.run()
	s.expectRefused(v1alpha1.ConditionMetadata, "", "")
	if got := s.pod().Labels["sidecar.istio.io/inject"]; got != "true" {
		t.Errorf("what the provider allows arrives as %q", got)
	}
}
