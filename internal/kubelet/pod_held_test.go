// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// held has the provider's manager let the record of an ended pod go, which finalizers of others hold.
func (w *world) held(name string, by ...string) {
	w.Helper()
	w.remove(w.Away, w.shadow(name))
	shadow := w.shadow(name)
	shadow.Finalizers = by
	w.put(w.Away, shadow)
}

const backups, snapshots = "example.com/backups", "example.com/snapshots"

func TestPodWhoseRecordTheProviderHoldsSaysSo(t *testing.T) {
	pod := dying("web-1", 30)
	w := offloaded(t, pod)
	w.put(w.Away, shadowOf(pod))
	w.held("web-1", snapshots, backups)
	w.reconcilePod("web-1")
	c := offload.PodCondition(&w.pod("web-1").Status, v1alpha1.PodReleased)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != v1alpha1.ReasonHeldByProvider {
		t.Fatalf("condition %v", c)
	}
	for _, word := range []string{backups + ", " + snapshots, turin, "--force --grace-period=0"} {
		if !strings.Contains(c.Message, word) {
			t.Errorf("%q is not in %q", word, c.Message)
		}
	}
	w.ExpectEvents(v1alpha1.ReasonHeldByProvider)
	w.wrote()
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v once more", got)
	}
	w.ExpectEvents()
}

func TestRecordThatTheProviderHoldsIsLeftBehindByForce(t *testing.T) {
	for name, test := range map[string]struct {
		remote, want corev1.PodPhase
		writes       int // until the pod is deleted
	}{
		"a pod of which nothing is known": {"", corev1.PodFailed, 1},
		"a pod that ended well":           {corev1.PodSucceeded, corev1.PodSucceeded, 2},
	} {
		t.Run(name, func(t *testing.T) {
			pod := dying("job-1", 0)
			w := offloaded(t, pod)
			w.put(w.Away, shadowOf(pod))
			if test.remote != "" {
				w.runRemote("job-1", test.remote)
			}
			w.held("job-1", backups)
			w.wrote()
			for range test.writes {
				w.reconcilePod("job-1")
			}
			want := []string{"home patch/status Pod job-1", "home delete Pod job-1"}
			if diff := cmp.Diff(want, w.wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if got := w.pod("job-1").Status.Phase; got != test.want {
				t.Errorf("phase %s, want %s", got, test.want)
			}
		})
	}
}

// The next pod of a StatefulSet has the name of the one before.
func TestNextPodWaitsForTheRecordThatTheProviderHolds(t *testing.T) {
	before := podCalled("db-0")
	before.UID = "uid-before"
	next := podCalled("db-0")
	w := offloaded(t, next)
	w.put(w.Away, shadowOf(before))
	w.held("db-0", backups)
	w.reconcilePod("db-0")
	if got := w.pod("db-0").Status; got.Reason != v1alpha1.ReasonOffloadingBackOff || !strings.Contains(got.Message, backups) {
		t.Errorf("status %q: %q", got.Reason, got.Message)
	}
	w.ExpectEvents(v1alpha1.ReasonOffloadingBackOff)
	w.forgetRemote("db-0")
	w.wrote()
	w.reconcilePod("db-0")
	if diff := cmp.Diff([]string{"remote create ShadowPod db-0"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestNextPodIsForgottenBesideTheRecordThatTheProviderHolds(t *testing.T) {
	before := podCalled("db-0")
	before.UID = "uid-before"
	w := offloaded(t, dying("db-0", 30))
	w.put(w.Away, shadowOf(before))
	w.held("db-0", backups)
	w.reconcilePod("db-0")
	if got := w.wrote(); len(got) == 0 || got[len(got)-1] != "home delete Pod db-0" {
		t.Errorf("wrote %v", got)
	}
}
