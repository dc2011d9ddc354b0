package namespaces

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxNote is how long the API lets the note of an event be.
const maxNote = 1024

// herald tells users of one pod, by an event on it.
type herald struct {
	client   client.Client
	clock    clock.PassiveClock
	instance string
}

// news is what an event says. A pod has one event of each name, however often it is told.
type news struct {
	name, reason, action, kind, note string
}

// tell makes the event.
func (h herald) tell(ctx context.Context, pod *corev1.Pod, n news) error {
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pod.Namespace, Name: n.name + "." + string(pod.UID)},
		EventTime:           metav1.NewMicroTime(h.clock.Now()),
		ReportingController: "hanse.dev/namespaces",
		ReportingInstance:   cut(h.instance, 128),
		Action:              n.action,
		Reason:              n.reason,
		Type:                n.kind,
		Note:                cut(n.note, maxNote),
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
	}
	err := h.client.Create(ctx, event)
	// A namespace that is being deleted takes no new objects.
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("create event on pod %s: %w", client.ObjectKeyFromObject(pod), err)
}
