// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
)

// releasedAtOnce is how many pods of a namespace are changed in one look. The rest follow in the next.
const releasedAtOnce = 50

// waiting releases pods that were made while no cluster had room for them. A request names a namespace.
//
// It writes only to pods that wait and are to wait no longer: once for a pod with our gate, and else once for each node that
// gets room for the pod, up to the limit of package offload.
type waiting struct {
	Config
	pace pace
}

// Reconcile looks at the waiting pods of one namespace, at most once in an interval.
func (c *waiting) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if wait := c.pace.wait(request, c.Clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	all := &corev1.PodList{}
	if err := c.Client.List(ctx, all, client.InNamespace(request.Name), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods of namespace %s: %w", request.Name, err)
	}
	pods := waitingAmong(all.Items)
	offloading, err := local.Find(ctx, c.Client, offloadingIn(request.Name).NamespacedName, &v1alpha1.NamespaceOffloading{})
	if err != nil || len(pods) == 0 {
		if offloading == nil {
			delete(c.pace, request)
		}
		return reconcile.Result{}, err
	}
	release, err := c.rule(ctx, offloading, all.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	released := 0
	for _, pod := range pods {
		changed, due, err := c.withClaims(ctx, pod, offloading, release)
		switch {
		case err != nil:
			return reconcile.Result{}, err
		case !due:
			continue
		case released == releasedAtOnce:
			return reconcile.Result{RequeueAfter: interval}, nil
		}
		released++
		if err := c.write(ctx, pod, changed); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// waitingAmong are those of the pods that wait. They are the cache's own.
func waitingAmong(pods []corev1.Pod) (found []*corev1.Pod) {
	for i := range pods {
		if offload.Waits(&pods[i]) {
			found = append(found, &pods[i])
		}
	}
	return found
}

// A releaseRule returns a waiting pod as it is to be now, and whether that is a change.
type releaseRule func(pod *corev1.Pod) (*corev1.Pod, bool)

// rule is that of the namespace with those pods. Where nothing is offloaded any more, pods need not leave.
func (c *waiting) rule(ctx context.Context, offloading *v1alpha1.NamespaceOffloading, pods []corev1.Pod) (releaseRule, error) {
	if offloading == nil || !offloading.DeletionTimestamp.IsZero() {
		return func(pod *corev1.Pod) (*corev1.Pod, bool) { return offload.Ungated(pod), offload.Gated(pod) }, nil
	}
	placement, err := offload.NewPlacement(offloading)
	if err != nil {
		return func(pod *corev1.Pod) (*corev1.Pod, bool) { return pod, false }, nil //nolint:nilerr // the status tells the user
	}
	table, nodes, err := c.readTable(ctx)
	if err != nil {
		return nil, err
	}
	shares := placement.NewShares(pods)
	return func(pod *corev1.Pod) (*corev1.Pod, bool) {
		released, changed := placement.Release(shares.Next(pod), hasRoom(pod, table, nodes))
		if changed && offload.Gated(pod) {
			shares.Count(released)
		}
		return released, changed
	}, nil
}

// hasRoom says of a virtual node whether the pod may go there by its own words, and the provider has room for it.
func hasRoom(pod *corev1.Pod, table exchange.Table, nodes map[string]*corev1.Node) func(node string) bool {
	asked, chosen := exchange.Count(pod), nodeaffinity.GetRequiredNodeAffinity(pod)
	open := map[string]bool{} // virtual node → it has room
	for i := range table.Rows {
		row := &table.Rows[i]
		node := nodes[row.Peer]
		if node == nil || !row.Accepted || !row.Open || !offload.TakesPods(node) || !exchange.Fits(asked, row.Offer.LargestPod) {
			continue
		}
		matches, err := chosen.Match(node)
		open[node.Name] = err == nil && matches
	}
	return func(node string) bool { return open[node] }
}

// write changes the pod, unless somebody else has changed it since: then its event brings us back.
func (c *waiting) write(ctx context.Context, pod, changed *corev1.Pod) error {
	patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	err := c.Client.Patch(ctx, changed, patch, fieldOwner)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("release pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	ctrl.LoggerFrom(ctx).Info("Released pod that waited for room", "Pod", client.ObjectKeyFromObject(pod), "gated", offload.Gated(pod))
	return nil
}

// KeepWaiting returns a transform of a cache of pods that trims them as the given one does, and keeps of those that wait for
// room what decides about that.
func KeepWaiting(trim toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || !offload.Waits(pod) {
			return trim(object)
		}
		spec, scheduled := pod.Spec, slices.DeleteFunc(slices.Clone(pod.Status.Conditions), func(c corev1.PodCondition) bool {
			return c.Type != corev1.PodScheduled
		})
		trimmed, err := trim(object)
		if pod, ok := trimmed.(*corev1.Pod); ok && err == nil {
			pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations = spec.NodeSelector, spec.Affinity, spec.Tolerations
			pod.Spec.SchedulingGates, pod.Spec.Volumes = spec.SchedulingGates, claimsAmong(spec.Volumes)
			pod.Status.Conditions = append(pod.Status.Conditions, scheduled...)
		}
		return trimmed, err
	}
}

// everyNamespace are the requests when offers have changed.
func (c *waiting) everyNamespace(ctx context.Context, _ client.Object) []reconcile.Request {
	offloadings := &v1alpha1.NamespaceOffloadingList{}
	if err := c.Client.List(ctx, offloadings, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list namespace offloadings")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(offloadings.Items))
	for i := range offloadings.Items {
		requests = append(requests, namespaceOf(ctx, &offloadings.Items[i])...)
	}
	return requests
}
