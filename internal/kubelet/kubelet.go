// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/remoteevents"
)

// How many nodes and leases are worked on at the same time. A thousand nodes come up at once in seconds, and a
// lease never waits behind a pod.
const (
	nodeWorkers  = 16
	leaseWorkers = 8
)

// podsDelay is for more pods of a virtual node to go or to be refused: each look at the node goes through all of them.
const podsDelay = time.Second

// How soon something that failed is tried again: at first, and at last.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
	// lastLeaseRetry lets a lease be tried several times before it ends.
	lastLeaseRetry = 5 * time.Second
)

// The ConfigMap in which a cluster tells its extensions whose client certificates are good.
const (
	clientCANamespace = metav1.NamespaceSystem
	clientCAName      = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

// SetupWithManager adds the controllers and the API server of all virtual nodes of this cluster to the manager, whose cache
// must have been made with CacheByObject. They reach peers over the links, whose Run is the caller's to start.
func SetupWithManager(mgr ctrl.Manager, config Config, links *peers.Links, clk clock.Clock) error {
	config.Default()
	if err := config.Validate(); err != nil {
		return fmt.Errorf("configuration of the kubelet: %w", err)
	}
	ctx := context.Background() //nolint:forbidigo // the manager has no context before it starts, and nothing is waited for
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, nodeNameField, indexPod); err != nil {
		return fmt.Errorf("index pods: %w", err)
	}
	api, err := newAPI(mgr, config, links, clk)
	if err != nil {
		return err
	}
	events := mgr.GetEventRecorder("hanse-kubelet")
	nodes := &nodeController{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: clk, events: events, ports: api, links: links,
	}
	leases := &leaseController{
		client: mgr.GetClient(), clock: clk, nodes: api.count, lasts: config.LeaseDuration, renewal: config.LeaseRenewal,
	}
	teller := remoteevents.New(mgr.GetClient(), clk, links.MayTell)
	pods := &podController{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: clk, events: events, links: links,
		nodeIP: config.NodeIP.String(), podIPs: config.PodIPs, defaultToleration: config.DefaultToleration, tracer: config.Tracer,
		tellEvents: teller.Tell,
	}
	services := &serviceController{client: mgr.GetClient(), events: events}
	evictor := newEvictor(mgr.GetClient(), mgr.GetAPIReader(), clk, events, pods)
	return errors.Join(
		nodes.setupWithManager(mgr), leases.setupWithManager(mgr), pods.setupWithManager(mgr, config.Workers),
		evictor.setupWithManager(mgr), mgr.Add(api), mgr.Add(teller), services.setupWithManager(mgr),
	)
}

func (c *nodeController) setupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtual-node").
		For(&v1alpha1.Peer{}).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOfAdvertisement)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(peerOfNode)).
		Watches(&corev1.Pod{}, local.Later(podsDelay, peerOfPod), builder.WithPredicates(goes())).
		WatchesRawSource(peers.LinkChanges(c.links, enqueuePeer)).
		WithOptions(controller.Options{MaxConcurrentReconciles: nodeWorkers, RateLimiter: backOff[reconcile.Request](lastRetry)}).
		Complete(c)
}

func (c *leaseController) setupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtual-node-lease").
		For(&corev1.Node{}, builder.WithPredicates(appears())).
		WithOptions(controller.Options{MaxConcurrentReconciles: leaseWorkers, RateLimiter: backOff[reconcile.Request](lastLeaseRetry)}).
		Complete(c)
}

func (c *podController) setupWithManager(mgr ctrl.Manager, workers int) error {
	events := podEvents{reader: c.client, links: c.links}
	from := handler.TypedEnqueueRequestsFromMapFunc[client.Object, request]
	log := mgr.GetLogger().WithName("pod")
	return builder.TypedControllerManagedBy[request](mgr).
		Named("pod").
		Watches(&corev1.Pod{}, from(ofPod)).
		Watches(&corev1.Node{}, from(events.of(peerOfNode)), builder.WithPredicates(appears())).
		Watches(&v1alpha1.Peer{}, from(events.of(peerItself)), builder.WithPredicates(remapped())).
		Watches(&v1alpha1.NamespaceOffloading{}, from(events.ofNamespace),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(peers.LinkChanges(c.links, events.linkChanged)).
		WatchesRawSource(peers.Changes(c.links, peers.Mappings, events.mappingChanged)).
		WatchesRawSource(peers.Changes(c.links, records, events.recordChanged)).
		WithLogConstructor(func(req *request) logr.Logger {
			if req == nil {
				return log
			}
			return log.WithValues("Peer", req.Peer, "Pod", req.Namespace+"/"+req.Name)
		}).
		WithOptions(controller.TypedOptions[request]{MaxConcurrentReconciles: workers, RateLimiter: backOff[request](lastRetry)}).
		Complete(c)
}

// newAPI returns the API server of the virtual nodes, which the caller adds to the manager. What it needs is added here.
func newAPI(mgr ctrl.Manager, config Config, links *peers.Links, clk clock.PassiveClock) (*apiServer, error) {
	clients, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make client of the kubelet API: %w", err)
	}
	authorities, err := dynamiccertificates.NewDynamicCAFromConfigMapController(
		"kubelet-client-ca", clientCANamespace, clientCAName, clientCAKey, clients)
	if err != nil {
		return nil, fmt.Errorf("watch client authorities: %w", err)
	}
	who, err := newAccess(clients, authorities)
	if err != nil {
		return nil, err
	}
	certificate, err := servingCertificate(config, mgr.Add)
	if err != nil {
		return nil, err
	}
	api := &apiServer{
		config: config, reader: mgr.GetClient(), live: mgr.GetAPIReader(), links: links, access: who,
		certificate: certificate, clock: clk, nodes: map[string]*servedNode{},
	}
	return api, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		authorities.Run(ctx, 1)
		return nil
	}))
}

// backOff tries each item again by itself, later each time: one peer's trouble slows down nobody else's pods.
func backOff[T comparable](last time.Duration) workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstRetry, last)
}

func toPeer(name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

func enqueuePeer(_ context.Context, peer string, queue peers.Queue[reconcile.Request]) {
	queue.Add(toPeer(peer)[0])
}

func peerItself(_ context.Context, object client.Object) []reconcile.Request {
	return toPeer(object.GetName())
}

func peerOfAdvertisement(_ context.Context, object client.Object) []reconcile.Request {
	peer, ok := strings.CutPrefix(object.GetNamespace(), v1alpha1.TenantNamespacePrefix)
	if !ok {
		return nil
	}
	return toPeer(peer)
}

func peerOfNode(_ context.Context, object client.Object) []reconcile.Request {
	return toPeer(peerOf(object.GetName()))
}

func peerOfPod(_ context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok || !maybeVirtual(pod.Spec.NodeName) {
		return nil
	}
	return toPeer(peerOf(pod.Spec.NodeName))
}

// when passes on creations and deletions, if they are asked for, and those changes that the function says.
func when[T client.Object](created, deleted bool, changed func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return created },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, was := e.ObjectOld.(T)
			after, is := e.ObjectNew.(T)
			return was && is && changed(before, after)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return deleted },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// goes passes on that a pod went, or that only finalizers keep it: a virtual node without an offer is deleted behind its
// last pod. It also passes on that a pod is refused, which the node shows.
func goes() predicate.Predicate {
	return when(false, true, func(before, after *corev1.Pod) bool {
		return !deletedAtOnce(before) && deletedAtOnce(after) || turnsRefused(before, after)
	})
}

// binds passes on that a pod came to its node: it must go again if the node is drained.
func binds() predicate.Predicate {
	return when(true, false, func(before, after *corev1.Pod) bool { return before.Spec.NodeName != after.Spec.NodeName })
}

// closes passes on that a virtual node was closed to new pods: then its drain may begin.
func closes() predicate.Predicate {
	return when(true, false, func(before, after *corev1.Node) bool { return !isClosed(before) && isClosed(after) })
}

// opens passes on virtual nodes that get other labels, or begin to take pods.
func opens() predicate.Predicate {
	return when(true, false, func(before, after *corev1.Node) bool {
		return !maps.Equal(before.Labels, after.Labels) || !takesPodsNow(before) && takesPodsNow(after)
	})
}

// appears passes on that an object came to be: what waits for it can go on.
func appears() predicate.Predicate {
	return when(true, false, func(_, _ client.Object) bool { return false })
}

// connects passes on that there begins or ceases to be a network to a peer.
func connects() predicate.Predicate {
	return when(false, true, func(before, after *v1alpha1.Peer) bool { return before.HasNetwork() != after.HasNetwork() })
}

// remapped passes on changes of a Peer by which its pods get other addresses here, or none, or are reached no more, or by which what they
// refer to goes there.
func remapped() predicate.Predicate {
	return when(true, true, func(before, after *v1alpha1.Peer) bool {
		return before.Connected() != after.Connected() || before.HasNetwork() != after.HasNetwork() || lacksCopies(before) != lacksCopies(after) ||
			after.HasNetwork() && !slices.Equal(before.Status.Mappings, after.Status.Mappings)
	})
}
