package reflector

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/hanse-dev/hanse/internal/reflection"
)

type queue = workqueue.TypedRateLimitingInterface[request]

// podHandler asks to look at what pods refer to: at once when one comes, unless all of it is there already, as it is for
// most pods of a Deployment; and after a while when one goes.
func (c *copier) podHandler() handler.TypedEventHandler[client.Object, request] {
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { c.podCame(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
			c.podWent(e.ObjectOld, q)
			c.podCame(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) { c.podWent(e.Object, q) },
	}
}

func (c *copier) podCame(object client.Object, q queue) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	for _, req := range requestsOfPod(pod) {
		if !c.serves(req, pod) {
			q.Add(req)
		}
	}
}

func (*copier) podWent(object client.Object, q queue) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	for _, req := range requestsOfPod(pod) {
		q.AddAfter(req, lull)
	}
}

// serves reports whether the twin is seen to have good copies of all that the pod needs. What is not there at home does
// not count as served: somebody must wait for it.
func (c *copier) serves(req request, pod *corev1.Pod) bool {
	source, over := c.sources.watched(req), c.sites.watched(req)
	if source == nil || over == nil {
		return false
	}
	seen := reflection.Sight{Wanted: map[string]bool{}, Found: map[string]metav1.Object{}}
	for _, reference := range needs(pod) {
		if reference.Kind != req.Kind {
			continue
		}
		found, ok := over.mirror.Get(types.NamespacedName{Namespace: over.name, Name: reference.Name})
		if !ok {
			return false
		}
		seen.Wanted[reference.Name], seen.Found[reference.Name] = true, found
	}
	seen.Sources = source.objects(seen.Wanted, req.Namespace)
	return len(reflection.Plan(seen)) == 0
}
