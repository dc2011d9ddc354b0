// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// twin returns the namespace in which the pods of the peer are, or those of nobody "".
func (w *world) twin(peer string) string {
	if peer == "" {
		return "ns"
	}
	name := "ns-" + peer
	w.publisher.capacity.take(testkit.TwinNamespace(name, peer), false)
	return name
}

// A local tenant can label its pods as it likes.
func TestPodsAreOfThePeerWhoseTwinTheyAreIn(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	posing := w.podWithImage("posing", "", "registry.example/secret:1")
	posing.Labels = map[string]string{v1alpha1.LabelPeer: "hamburg", v1alpha1.LabelHomeUID: "u"}
	posing.Spec.Containers[0].Resources.Requests = testkit.Quantities("cpu", "1")
	w.publisher.capacity.take(posing, false)
	expectCPU := func(want string) {
		t.Helper()
		w.Clock.Step(2 * time.Second)
		cpu := w.publish("hamburg").Spec.Availability[corev1.ResourceCPU]
		w.expect(want, cpu.String())
	}
	expectCPU("3")

	// A namespace may come to be known after its pods.
	early := posing.DeepCopy()
	early.Namespace, early.Labels = "late", nil
	w.publisher.capacity.take(early, false)
	expectCPU("2")
	twin := testkit.TwinNamespace("late", "hamburg")
	w.publisher.capacity.take(twin, false)
	expectCPU("3")
	w.publisher.capacity.take(twin, true)
	expectCPU("2")
}
