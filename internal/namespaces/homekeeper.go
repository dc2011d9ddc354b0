package namespaces

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Events live for an hour. Nobody needs one about a pod that is older.
const eventLife = time.Hour

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
	client client.Client
	clock  clock.PassiveClock
	herald herald
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

func (h *homekeeper) tell(ctx context.Context, pod *corev1.Pod) error {
	return h.herald.tell(ctx, pod, news{
		name: "runs-at-home", reason: v1alpha1.ReasonRunsAtHome, action: "Admission", kind: corev1.EventTypeWarning,
		note: "The namespace has strategy Remote, but this pod cannot run in another cluster yet and stays on the " +
			"nodes of this one: " + pod.Annotations[v1alpha1.AnnotationRunsAtHome],
	})
}
