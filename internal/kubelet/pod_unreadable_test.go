// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

func TestPodWhoseStatusCannotBeReadIsUnknownUntilItCan(t *testing.T) {
	for name, raw := range map[string]string{
		"lists for words":     `{"phase":["Running"],"reason":[]}`,
		"another type":        `{"phase":7}`,
		"an absurd number":    `{"allocatedResources":{"cpu":"1e-999999999"}}`,
		"a status too large":  `{"message":"` + strings.Repeat("x", offload.MaxStatusBytes) + `"}`,
		"one that is far off": `{"message":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := offloaded(t, podCalled("web-1"))
			w.reconcilePod("web-1")
			w.runRemote("web-1", corev1.PodRunning)
			w.reconcilePod("web-1")
			good := w.shadow("web-1").Status
			w.EventReasons()

			bad := w.shadow("web-1")
			bad.Status.Pod = &runtime.RawExtension{Raw: []byte(raw)}
			w.put(w.Away, bad)
			w.reconcilePod("web-1")
			w.expectUnknown("web-1")
			w.ExpectEvents(v1alpha1.ReasonStatusUnreadable)
			w.wrote()
			w.reconcilePod("web-1")
			if got := w.wrote(); got != nil {
				t.Errorf("wrote %v once more", got)
			}

			again := w.shadow("web-1")
			again.Status = good
			w.put(w.Away, again)
			w.reconcilePod("web-1")
			pod := w.pod("web-1")
			if !isReady(pod) || offload.PodCondition(&pod.Status, v1alpha1.PodReported) != nil {
				t.Errorf("conditions %v", pod.Status.Conditions)
			}
			w.ExpectEvents()
		})
	}
}

// expectUnknown checks that the pod runs, and that nobody knows how it is.
func (w *world) expectUnknown(name string) {
	w.Helper()
	status := w.pod(name).Status
	for kind, want := range map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.PodReady: corev1.ConditionUnknown, v1alpha1.PodReported: corev1.ConditionFalse,
	} {
		if c := offload.PodCondition(&status, kind); c == nil || c.Status != want || c.Reason != v1alpha1.ReasonStatusUnreadable {
			w.Errorf("condition %s: %v", kind, c)
		}
	}
	if status.Phase != corev1.PodRunning || status.PodIP == "" || len(status.ContainerStatuses) != 1 {
		w.Errorf("what was known is gone: %v", status)
	}
}
