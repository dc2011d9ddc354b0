// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/internal/reflection"
)

// asked returns how many requests there are at once for a pod that comes.
func (w *world) asked(pod *corev1.Pod) int {
	w.Helper()
	for w.queue.Len() > 0 {
		req, _ := w.queue.Get()
		w.queue.Done(req)
	}
	handler := w.copier.podHandler()
	handler.Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: pod}, w.queue)
	return w.queue.Len()
}

func TestPodsWhoseNeedsAreServedAskForNothing(t *testing.T) {
	onlySecret, other, missing := podUsing("web-2"), podUsing("web-3"), podUsing("web-4")
	onlySecret.Spec.Volumes = onlySecret.Spec.Volumes[:1]
	other.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "other"}}}}
	missing.Spec.Volumes = []corev1.Volume{onlySecret.Spec.Volumes[0], other.Spec.Volumes[0]}

	w := newWorld(t, podUsing("web"))
	w.save(password("a"))
	w.connect()
	if got := w.asked(onlySecret); got != 1 {
		t.Errorf("before anything is there: %d requests", got)
	}
	w.look(reflection.Secret)
	w.settle(w.has("a"))
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want int
	}{
		"it needs what is there":        {onlySecret, 0},
		"it needs something else":       {other, 1},
		"it needs something more":       {missing, 1},
		"it needs another kind as well": {podUsing("web-5"), 1},
	} {
		if got := w.asked(test.pod); got != test.want {
			t.Errorf("%s: %d requests, want %d", name, got, test.want)
		}
	}
	w.save(password("b"))
	w.await(func() bool { return w.asked(onlySecret) == 1 }) // when the change is seen, until it is carried
}

func TestPodsThatGoAskLater(t *testing.T) {
	w := newWorld(t)
	handler := w.copier.podHandler()
	handler.Delete(t.Context(), event.TypedDeleteEvent[client.Object]{Object: podUsing("web")}, w.queue)
	if w.queue.Len() != 0 {
		t.Error("at once")
	}
	seen := map[reflection.Kind]bool{}
	for range w.copier.kinds() {
		req, _ := w.queue.Get()
		seen[req.Kind] = true
		w.queue.Done(req)
	}
	if len(seen) != len(w.copier.kinds()) {
		t.Errorf("asked for %v", seen)
	}
}
