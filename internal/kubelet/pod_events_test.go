// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestEventsOfTheRemotePodAreToldAtHome(t *testing.T) {
	pod := podCalled("web")
	w, shadow := offloaded(t, pod), shadowOf(pod)
	now := metav1.NewTime(w.Clock.Now())
	shadow.Status.Events = []v1alpha1.RemoteEvent{{
		Type: "Warning", Reason: "Unhealthy", Message: "Readiness probe failed: HTTP 500", Source: v1alpha1.SourceKubelet,
		Count: 3, First: now, Last: now,
	}}
	w.put(w.Away, shadow)
	w.reconcilePod("web")
	told := w.told
	if len(told) != 1 || told[0].Peer != turin || told[0].Home.GetName() != "web" {
		t.Fatalf("told %v", told)
	}
	if diff := cmp.Diff(shadow.Status.Events, told[0].Events); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
