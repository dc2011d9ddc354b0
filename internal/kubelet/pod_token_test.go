// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// tokenVolume is as Kubernetes adds it to pods.
func tokenVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}
}

func podWithToken(volume, account string) *corev1.Pod {
	pod := podCalled("web-1")
	pod.Spec.ServiceAccountName, pod.Spec.Volumes = account, []corev1.Volume{tokenVolume(volume)}
	return pod
}

const ofKubernetes = "kube-api-access-x7k2p"

// Kubernetes gives a token to every pod that does not refuse it. Where it stays at home, the status that comes home first says so.
func TestPodThatLeavesItsTokenAtHomeSaysSoOnce(t *testing.T) {
	skipping := podWithToken(ofKubernetes, "operator")
	skipping.Annotations = map[string]string{v1alpha1.AnnotationSkipToken: "true"}
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		connected bool
		condition bool
		events    string
	}{
		"the account of every pod":         {pod: podWithToken(ofKubernetes, "default"), condition: true},
		"an account of its own":            {pod: podWithToken(ofKubernetes, "operator"), condition: true, events: corev1.EventTypeWarning},
		"where a network connects it":      {pod: podWithToken(ofKubernetes, "operator"), connected: true},
		"a token that the author asks for": {pod: podWithToken("vault", "operator")},
		"an author who does not want it":   {pod: skipping},
		"no token":                         {pod: podCalled("web-1")},
	} {
		t.Run(name, func(t *testing.T) {
			w := offloaded(t, test.pod)
			if !test.connected {
				w.connection(metav1.ConditionFalse, v1alpha1.ReasonNoNetworkFabric)
			}
			w.reconcilePod("web-1")
			w.runRemote("web-1", corev1.PodRunning)
			w.wrote()
			for range 2 {
				w.reconcilePod("web-1")
				w.Clock.Step(time.Minute)
			}
			if diff := cmp.Diff([]string{"home patch/status Pod web-1"}, w.wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			status := w.pod("web-1").Status
			if c := offload.PodCondition(&status, v1alpha1.PodToken); (c != nil) != test.condition {
				t.Errorf("condition %+v", c)
			}
			var events []string
			for len(w.Events.Events) > 0 {
				kind, _, _ := strings.Cut(<-w.Events.Events, " ")
				events = append(events, kind)
			}
			if got := strings.Join(events, ", "); got != test.events {
				t.Errorf("events: %s, want %s", got, test.events)
			}
		})
	}
}

// readsTokens says whether the pod, as the peer is asked to run it, reads its tokens from a Secret.
func (w *world) readsTokens(name string) bool {
	w.Helper()
	shadow := &v1alpha1.ShadowPod{}
	w.Away.Get(shadow, twinName, name)
	return strings.Contains(shadow.Spec.Pod, offload.TokenSecret(w.pod(name).UID))
}

func TestPodThatWaitsForItsTokenSaysSoUntilItRuns(t *testing.T) {
	pod := podWithToken(ofKubernetes, "operator")
	w := offloaded(t, pod)
	w.reconcilePod("web-1")
	says := func() string {
		w.Helper()
		w.reconcilePod("web-1")
		if c := offload.PodCondition(&w.pod("web-1").Status, v1alpha1.PodToken); c != nil {
			return string(c.Status) + " " + c.Reason
		}
		return ""
	}
	w.runRemote("web-1", corev1.PodPending)
	missing := w.shadow("web-1")
	now := metav1.NewTime(w.Clock.Now())
	missing.Status.Events = []v1alpha1.RemoteEvent{{
		Type: "Warning", Reason: "FailedMount", Source: v1alpha1.SourceKubelet, Count: 1, First: now, Last: now,
		Message: `MountVolume.SetUp failed for volume "x" : secret "other" not found`,
	}}
	w.put(w.Away, missing)
	if got := says(); got != "" {
		t.Errorf("about another Secret it says %s", got)
	}
	missing = w.shadow("web-1")
	missing.Status.Events[0].Message = `MountVolume.SetUp failed for volume "x" : secret "` + offload.TokenSecret(pod.UID) + `" not found`
	w.put(w.Away, missing)
	if got := says(); got != "False "+v1alpha1.ReasonTokenRefused {
		t.Errorf("it says %q", got)
	}
	if !offload.TakesTokenSecret(w.pod("web-1"), true) {
		t.Error("no token is made for a pod that says that it waits for one")
	}
	running := w.shadow("web-1")
	running.Status.Phase = string(corev1.PodRunning)
	w.put(w.Away, running)
	if got := says(); got != "" {
		t.Errorf("when it runs it says %s", got)
	}
}

// The volumes of a pod that runs never change, and what would come after it at the peer must find what it finds.
func TestWhetherAPodHasItsTokenIsDecidedWhenItGoesOut(t *testing.T) {
	for name, first := range map[string]metav1.ConditionStatus{"with": metav1.ConditionTrue, "without": metav1.ConditionFalse} {
		t.Run(name, func(t *testing.T) {
			w := offloaded(t, podWithToken(ofKubernetes, "operator"))
			reason := map[metav1.ConditionStatus]string{
				metav1.ConditionTrue: v1alpha1.ReasonReady, metav1.ConditionFalse: v1alpha1.ReasonNoNetworkFabric,
			}
			w.connection(first, reason[first])
			w.reconcilePod("web-1")
			with := first == metav1.ConditionTrue
			if w.readsTokens("web-1") != with {
				t.Fatalf("at first it reads tokens: %t", !with)
			}
			second := metav1.ConditionFalse
			if !with {
				second = metav1.ConditionTrue
			}
			w.connection(second, reason[second])
			pod := w.pod("web-1")
			pod.Labels["app"] = "other"
			w.put(w.Home, pod)
			w.reconcilePod("web-1")
			w.wrote()
			w.reconcilePod("web-1")
			if got := w.wrote(); got != nil || w.readsTokens("web-1") != with {
				t.Errorf("then it reads tokens: %t; wrote %v", w.readsTokens("web-1"), got)
			}
		})
	}
}

func TestPodThatAsksForATokenDoesNotGoToAClusterWithoutHanse(t *testing.T) {
	w := offloaded(t, podWithToken("vault", "default"))
	p := peer()
	w.Home.Get(p, "", turin)
	p.Spec.Mode = v1alpha1.ModeAgentless
	w.put(w.Home, p)
	w.reconcilePod("web-1")
	if pod := w.pod("web-1"); !isHeld(pod) || !strings.Contains(pod.Status.Message, "token of its service account") {
		t.Errorf("the pod says %q", pod.Status.Message)
	}
	if err := w.Away.Client.Get(t.Context(), client.ObjectKey{Namespace: twinName, Name: "web-1"}, &v1alpha1.ShadowPod{}); err == nil {
		t.Error("it went out")
	}
}
