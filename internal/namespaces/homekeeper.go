package namespaces

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// Events live for an hour. Nobody needs one about a pod that is older.
	eventLife = time.Hour
	maxNote   = 1024
)

// keptAtHome lets through new pods that admission has kept at home. They keep that mark and their strategy does not
// matter later, so no other event of theirs is looked at.
var keptAtHome = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return e.Object.GetAnnotations()[v1alpha1.AnnotationRunsAtHome] != "" },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// homekeeper tells users of namespaces with strategy Remote, by an event on the pod, why a pod runs at home.
type homekeeper struct {
	client   client.Client
	clock    clock.PassiveClock
	instance string
}

// Reconcile looks at one pod.
func (h *homekeeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod, err := find(ctx, h.client, request.NamespacedName, &corev1.Pod{})
	if err != nil || pod == nil {
		return reconcile.Result{}, err
	}
	offloading, err := find(ctx, h.client, offloadingIn(pod.Namespace).NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil || offloading == nil {
		return reconcile.Result{}, err
	}
	if offloading.Spec.Strategy != v1alpha1.StrategyRemote || !h.isNews(pod) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, h.tell(ctx, pod)
}

func (h *homekeeper) isNews(pod *corev1.Pod) bool {
	return pod.Annotations[v1alpha1.AnnotationRunsAtHome] != "" && h.clock.Since(pod.CreationTimestamp.Time) < eventLife
}

// tell makes the event. Its name is the same each time, so that a pod has one event however often we start.
func (h *homekeeper) tell(ctx context.Context, pod *corev1.Pod) error {
	news := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace,
			Name:      "runs-at-home." + string(pod.UID),
		},
		EventTime:           metav1.NewMicroTime(h.clock.Now()),
		ReportingController: "hanse.dev/namespaces",
		ReportingInstance:   cut(h.instance, 128),
		Action:              "Admission",
		Reason:              v1alpha1.ReasonRunsAtHome,
		Type:                corev1.EventTypeWarning,
		Note: cut("The namespace has strategy Remote, but this pod cannot run in another cluster yet and stays on the "+
			"nodes of this one: "+pod.Annotations[v1alpha1.AnnotationRunsAtHome], maxNote),
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
	}
	err := h.client.Create(ctx, news)
	// A namespace that is being deleted takes no new objects.
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("create event on pod %s: %w", client.ObjectKeyFromObject(pod), err)
}
