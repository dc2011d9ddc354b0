// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// Events live for an hour. Nobody needs one about a pod that is older.
const eventLife = time.Hour

// maxNote is how long the API lets the note of an event be.
const maxNote = 1024

// homebound tells users of namespaces with strategy Remote, by an event on the pod, why a pod runs at home. A request names
// the pod.
type homebound struct{ Config }

// Reconcile looks at one pod.
func (h *homebound) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod, err := local.Find(ctx, h.Client, request.NamespacedName, &corev1.Pod{})
	if err != nil || pod == nil {
		return reconcile.Result{}, err
	}
	offloading, err := local.Find(ctx, h.Client, offloadingIn(pod.Namespace).NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil || offloading == nil {
		return reconcile.Result{}, err
	}
	age := h.Clock.Since(pod.CreationTimestamp.Time)
	if offloading.Spec.Strategy != v1alpha1.StrategyRemote || !isKeptHome(pod) || age >= eventLife {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, h.tellCause(ctx, pod)
}

// tellCause says what keeps the pod at home. What decides is not in the cache.
func (h *homebound) tellCause(ctx context.Context, pod *corev1.Pod) error {
	whole := &corev1.Pod{}
	if err := h.Live.Get(ctx, client.ObjectKeyFromObject(pod), whole); err != nil {
		return client.IgnoreNotFound(err)
	}
	if cause, kept := offload.KeptHome(whole); kept && whole.UID == pod.UID {
		return h.tell(ctx, whole, cause)
	}
	return nil
}

// podsOf returns the pods that admission has kept at home in the namespace of the NamespaceOffloading.
func (h *homebound) podsOf(ctx context.Context, offloading client.Object) []reconcile.Request {
	pods := &corev1.PodList{}
	if err := h.Client.List(ctx, pods, client.InNamespace(offloading.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the pods of a namespace", "Namespace", offloading.GetNamespace())
		return nil
	}
	var kept []reconcile.Request
	for i := range pods.Items {
		if isKeptHome(&pods.Items[i]) {
			kept = append(kept, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
		}
	}
	return kept
}

// tell makes the event. It has a name that is made of the pod's UID, so that each pod has one, however often this process
// starts.
func (h *homebound) tell(ctx context.Context, pod *corev1.Pod, cause string) error {
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pod.Namespace, Name: "runs-at-home." + string(pod.UID)},
		EventTime:           metav1.NewMicroTime(h.Clock.Now()),
		ReportingController: "hanse.dev/namespaces",
		ReportingInstance:   sanitize.Text(h.Instance, 128),
		Action:              "Admission",
		Reason:              v1alpha1.ReasonRunsAtHome,
		Type:                corev1.EventTypeWarning,
		Note: sanitize.Text("The namespace has strategy Remote, but this pod cannot run in another cluster yet and stays on the "+
			"nodes of this one: "+cause, maxNote),
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
	}
	err := h.Client.Create(ctx, event)
	// A namespace that is being deleted takes no new objects.
	if err == nil || apierrors.IsAlreadyExists(err) || local.IsEnding(err) {
		return nil
	}
	return fmt.Errorf("create event on pod %s: %w", client.ObjectKeyFromObject(pod), err)
}
