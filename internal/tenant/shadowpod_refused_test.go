// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestRefusedPod(t *testing.T) {
	t.Run("by Pod Security waits and is given up", func(t *testing.T) {
		s := newStage(t, shadowPod())
		allow := s.Home.Refuse("create Pod", forbidden403())
		if again := s.run(); again != refusedAtLeast {
			t.Errorf("looks again in %s, want %s", again, refusedAtLeast)
		}
		testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionFalse, v1alpha1.ReasonPodRefused)
		s.Clock.Step(refusedFor / 2)
		if again := s.run(); again != refusedAtMost {
			t.Errorf("looks again in %s, want %s", again, refusedAtMost)
		}
		s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web", "create Pod web")
		s.Clock.Step(refusedFor / 2)
		s.run()
		testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, v1alpha1.ReasonPodRefused)
		allow()
		s.run()
		s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	})
	t.Run("by a right that is not known yet is made", func(t *testing.T) {
		s := newStage(t, shadowPod())
		allow := s.Home.Refuse("create Pod", forbidden403())
		s.run()
		allow()
		s.Clock.Step(refusedAtLeast)
		s.run()
		s.becomes(s.running)
		s.run()
		testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled")
	})
	for reason, refusal := range map[string]error{
		v1alpha1.ReasonPodRefused: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil),
		v1alpha1.ReasonNamespaceTerminating: &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason:  metav1.StatusReasonForbidden,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
		}},
	} {
		t.Run("for good is given up at once: "+reason, func(t *testing.T) {
			s := newStage(t, shadowPod())
			s.Home.Refuse("create Pod", refusal)
			s.run()
			s.run()
			testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, reason)
			s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
		})
	}
	t.Run("for another trouble is tried again", func(t *testing.T) {
		s := newStage(t, shadowPod())
		s.Home.Refuse("create Pod", apierrors.NewInternalError(errors.New("etcd is away")))
		_, err := s.pods.Reconcile(t.Context(), requestFor(s.twin, "web")[0])
		if !apierrors.IsInternalError(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("that asks for too much is never sent", func(t *testing.T) {
		shadow := shadowPod()
		shadow.Spec.Pod = `{"spec":{"hostNetwork":true}}`
		s := newStage(t, shadow)
		s.run()
		s.run()
		testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, v1alpha1.ReasonPodInvalid)
		if c := meta.FindStatusCondition(s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable); !strings.HasPrefix(c.Message, "spec.hostNetwork: not allowed") {
			t.Errorf("got message %q", c.Message)
		}
		s.Home.ExpectWrites("update/status ShadowPod web")
	})
}

func TestPodOfAGivenUpRecordIsRemoved(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	shadow := s.shadow()
	shadow.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionUnrecoverable, Status: metav1.ConditionTrue, Reason: "X", LastTransitionTime: metav1.NewTime(s.Clock.Now()),
	}}
	if err := s.Home.Server.Status().Update(t.Context(), shadow); err != nil {
		t.Fatal(err)
	}
	s.run()
	s.run()
	s.Home.ExpectWrites("create Pod web", "delete Pod web")
}

func TestPodThatCameThroughThisClusterIsNotTaken(t *testing.T) {
	for name, c := range map[string]struct {
		path []string
		want bool
	}{
		"from its home":           {nil, true},
		"by way of another":       {[]string{"visby", "lubeck-id"}, true},
		"by way of this cluster":  {[]string{"hamburg-id", "lubeck-id"}, false},
		"and then by another one": {[]string{"visby", "hamburg-id", "lubeck-id"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := shadowPod()
			shadow.Spec.Path = c.path
			s := newStage(t, shadow)
			s.pods.config.ClusterID = "hamburg-id"
			s.run()
			if (s.pod() != nil) != c.want {
				t.Errorf("got pod %v", s.pod())
			}
			if !c.want {
				testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, v1alpha1.ReasonLoop)
			}
		})
	}
}

func TestPodsMayGoOnIfTheClusterSendsThemOn(t *testing.T) {
	for name, want := range map[string]bool{"it does": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			shadow := shadowPod()
			shadow.Spec.Path = []string{"visby", "lubeck-id"}
			s := newStage(t, shadow)
			s.pods.config.ClusterID, s.pods.config.SendOn = "hamburg-id", want
			s.run()
			if path, sent := s.pod().Annotations[v1alpha1.AnnotationPath]; sent != want || sent && path != "visby,lubeck-id,hamburg-id" {
				t.Errorf("path %q", path)
			}
		})
	}
}

// A pod that has never run waits for room for as long as it takes. Home believes of one that has run that it does.
func TestPodThatRanIsGivenUpWhenLimitsRefuseItNow(t *testing.T) {
	exceeded := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("exceeded quota: hanse"))
	for name, refuse := range map[string]func(*stage){
		"the peer's limits": func(s *stage) {
			p := &v1alpha1.Peer{}
			s.Home.Find(p, "", "lubeck")
			p.Spec.Limits.Resources = cpuOf("1m")
			s.Home.Put(p)
		},
		"a quota": func(s *stage) { s.Home.Refuse("create Pod", exceeded) },
	} {
		t.Run(name, func(t *testing.T) {
			s := runningStage(t, limited("cpu", "2"), "500m")
			s.somebodyDeletes()
			s.kubeletLetsGo()
			refuse(s)
			if again := s.run(); again <= 0 || again > refusedFor {
				t.Errorf("looks again in %s", again)
			}
			s.expectHeld("web", v1alpha1.ReasonLimitExceeded)
			if meta.IsStatusConditionTrue(s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable) {
				t.Error("it was given up at once")
			}
			s.Clock.Step(refusedFor)
			s.run()
			testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, v1alpha1.ReasonLimitExceeded)
		})
	}
}
