// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// serviceController tells a Service why pods behind it are no endpoints: they run at peers that no network connects. Requests
// are names of Services.
type serviceController struct {
	client client.Client
	events events.EventRecorder
	// told is what was said of each Service, by its UID. It keeps us from saying it again, and can be forgotten any time.
	told sync.Map
}

const (
	// serviceWorkers is how many Services are looked at in parallel. It is our own cache that answers.
	serviceWorkers = 2
	// serviceDelay is for the other pods of a Service to be bound: each look goes through all of them.
	serviceDelay = 2 * time.Second
)

func (c *serviceController) setupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("service").
		For(&corev1.Service{}).
		Watches(&corev1.Pod{}, local.Later(serviceDelay, c.ofPod), builder.WithPredicates(binds())).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(c.ofAll), builder.WithPredicates(connects())).
		WithOptions(controller.Options{MaxConcurrentReconciles: serviceWorkers, RateLimiter: backOff[reconcile.Request](lastRetry)}).
		Complete(c)
}

// Reconcile says once what is to say of one Service.
func (c *serviceController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	if err := c.client.Get(ctx, req.NamespacedName, service, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(service.Spec.Selector) == 0 || !service.DeletionTimestamp.IsZero() {
		c.told.Delete(service.UID)
		return reconcile.Result{}, nil
	}
	pods, err := listPods(ctx, c.client, client.InNamespace(service.Namespace), client.MatchingLabels(service.Spec.Selector))
	if err != nil {
		return reconcile.Result{}, err
	}
	peers := &v1alpha1.PeerList{}
	if err := c.client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list peers: %w", err)
	}
	apart := peersApart(pods, peers.Items)
	if len(apart) == 0 {
		c.told.Delete(service.UID)
		return reconcile.Result{}, nil
	}
	names := strings.Join(apart, ", ")
	if before, known := c.told.Swap(service.UID, names); !known || before != names {
		c.events.Eventf(service, nil, corev1.EventTypeWarning, v1alpha1.ReasonNoNetworkFabric, "Offload",
			"Pods at peers that no network connects are no endpoints of the Service: %s. Have its pods run at home, or reach them "+
				"by kubectl port-forward", bounded(names))
	}
	return reconcile.Result{}, nil
}

// peersApart returns the names of the peers that run one of the pods and are not connected by a network, in their order.
func peersApart(pods []corev1.Pod, peers []v1alpha1.Peer) []string {
	var apart []string
	for i := range pods {
		pod := &pods[i]
		if _, stays := staysHome(pod); !maybeVirtual(pod.Spec.NodeName) || terminal(pod) || stays {
			continue
		}
		at := slices.IndexFunc(peers, func(p v1alpha1.Peer) bool { return p.Name == peerOf(pod.Spec.NodeName) })
		if at >= 0 && !peers[at].HasNetwork() && !slices.Contains(apart, peers[at].Name) {
			apart = append(apart, peers[at].Name)
		}
	}
	slices.Sort(apart)
	return apart
}

// ofPod are the Services whose endpoint the pod would be.
func (c *serviceController) ofPod(ctx context.Context, pod client.Object) []reconcile.Request {
	if p, ok := pod.(*corev1.Pod); !ok || !maybeVirtual(p.Spec.NodeName) {
		return nil
	}
	return c.services(ctx, pod.GetNamespace(), func(service *corev1.Service) bool {
		return labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.GetLabels()))
	})
}

func (c *serviceController) ofAll(ctx context.Context, _ client.Object) []reconcile.Request {
	return c.services(ctx, metav1.NamespaceAll, func(*corev1.Service) bool { return true })
}

func (c *serviceController) services(ctx context.Context, namespace string, is func(*corev1.Service) bool) []reconcile.Request {
	list := &corev1.ServiceList{}
	if err := c.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read services from the cache")
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if service := &list.Items[i]; len(service.Spec.Selector) > 0 && is(service) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: service.Namespace, Name: service.Name}})
		}
	}
	return requests
}

// TrimService is a cache transform that keeps of a Service which pods are behind it.
func TrimService(object any) (any, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: service.Name, Namespace: service.Namespace, UID: service.UID, ResourceVersion: service.ResourceVersion,
			DeletionTimestamp: service.DeletionTimestamp,
		},
		Spec: corev1.ServiceSpec{Selector: service.Spec.Selector},
	}, nil
}
