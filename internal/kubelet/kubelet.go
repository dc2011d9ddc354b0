package kubelet

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/hanse-dev/hanse/internal/peers"
)

// How many nodes and leases are worked on at the same time. A thousand nodes come up at once in seconds, and a
// lease never waits behind a pod.
const (
	nodeWorkers  = 16
	leaseWorkers = 8
)

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

// recorderName is who reports the events.
const recorderName = "hanse-kubelet"

// Kubelet is every virtual node of this cluster.
type Kubelet struct {
	config Config
	links  *peers.Links
	clock  clock.Clock
}

// New returns a Kubelet that reaches peers over the links, whose Run is the caller's to start. Its own parts are started by
// the manager that SetupWithManager is given.
func New(config Config, links *peers.Links, clk clock.Clock) *Kubelet {
	config.Default()
	return &Kubelet{config: config, links: links, clock: clk}
}

// SetupWithManager adds the controllers and the API server of the virtual nodes to the manager, whose cache must have
// been made with CacheByObject.
func (k *Kubelet) SetupWithManager(mgr ctrl.Manager) error {
	if err := k.config.Validate(); err != nil {
		return fmt.Errorf("configuration of the kubelet: %w", err)
	}
	ctx := context.Background() //nolint:forbidigo // the manager has no context before it starts, and nothing is waited for
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, nodeNameField, indexPod)
	if err != nil {
		return fmt.Errorf("index pods: %w", err)
	}
	api, err := k.newAPI(mgr)
	if err != nil {
		return err
	}
	pods := &podController{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: k.clock,
		events: mgr.GetEventRecorder(recorderName), links: k.links, nodeIP: k.config.NodeIP.String(),
		defaultToleration: k.config.DefaultToleration, tracer: k.config.Tracer,
	}
	for _, setup := range []func() error{
		func() error { return k.addNodes(mgr, api) },
		func() error { return k.addLeases(mgr, api) },
		func() error { return k.addPods(mgr, pods) },
		func() error {
			return newEvictor(mgr.GetClient(), mgr.GetAPIReader(), k.clock, mgr.GetEventRecorder(recorderName), pods).setupWithManager(mgr)
		},
		func() error { return mgr.Add(api) },
	} {
		if err := setup(); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kubelet) addNodes(mgr ctrl.Manager, api *apiServer) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtual-node").
		For(&v1alpha1.Peer{}).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOfAdvertisement)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(peerOfNode)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(peerOfPod), builder.WithPredicates(goes())).
		WatchesRawSource(peers.LinkChanges(k.links, enqueuePeer)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: nodeWorkers,
			RateLimiter:             backOff[reconcile.Request](lastRetry),
		}).
		Complete(&nodeController{
			client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: k.clock,
			events: mgr.GetEventRecorder(recorderName), ports: api, links: k.links,
		})
	if err != nil {
		return fmt.Errorf("add controller of virtual nodes: %w", err)
	}
	return nil
}

func (k *Kubelet) addLeases(mgr ctrl.Manager, api *apiServer) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtual-node-lease").
		For(&corev1.Node{}, builder.WithPredicates(appears())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: leaseWorkers,
			RateLimiter:             backOff[reconcile.Request](lastLeaseRetry),
		}).
		Complete(&leaseController{
			client: mgr.GetClient(), clock: k.clock, nodes: api.count,
			seconds: k.config.leaseSeconds(), renewal: k.config.LeaseRenewal,
		})
	if err != nil {
		return fmt.Errorf("add controller of leases: %w", err)
	}
	return nil
}

func (k *Kubelet) addPods(mgr ctrl.Manager, pods *podController) error {
	events := podEvents{reader: mgr.GetClient(), links: k.links}
	from := handler.TypedEnqueueRequestsFromMapFunc[client.Object, request]
	log := mgr.GetLogger().WithName("pod")
	err := builder.TypedControllerManagedBy[request](mgr).
		Named("pod").
		Watches(&corev1.Pod{}, from(ofPod)).
		Watches(&corev1.Node{}, from(events.of(peerOfNode)), builder.WithPredicates(appears())).
		Watches(&v1alpha1.Peer{}, from(events.of(peerItself)), builder.WithPredicates(remapped())).
		Watches(&v1alpha1.Advertisement{}, from(events.of(peerOfAdvertisement)), builder.WithPredicates(remapped())).
		Watches(&v1alpha1.NamespaceOffloading{}, from(events.ofNamespace),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(peers.LinkChanges(k.links, events.linkChanged)).
		WatchesRawSource(peers.Changes(k.links, peers.Mappings, events.mappingChanged)).
		WatchesRawSource(peers.Changes(k.links, records, events.recordChanged)).
		WithLogConstructor(func(req *request) logr.Logger {
			if req == nil {
				return log
			}
			return log.WithValues("Peer", req.Peer, "Pod", req.Namespace+"/"+req.Name)
		}).
		WithOptions(controller.TypedOptions[request]{
			MaxConcurrentReconciles: k.config.Workers,
			RateLimiter:             backOff[request](lastRetry),
		}).
		Complete(pods)
	if err != nil {
		return fmt.Errorf("add controller of pods: %w", err)
	}
	return nil
}

func (k *Kubelet) newAPI(mgr ctrl.Manager) (*apiServer, error) {
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
	certificate, err := servingCertificate(k.config, mgr.Add)
	if err != nil {
		return nil, err
	}
	return &apiServer{
			config: k.config, reader: mgr.GetClient(), live: mgr.GetAPIReader(), links: k.links, access: who,
			certificate: certificate, clock: k.clock, nodes: map[string]*servedNode{},
		}, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
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
// last pod.
func goes() predicate.Predicate {
	return when(false, true, func(before, after *corev1.Pod) bool { return !deletedAtOnce(before) && deletedAtOnce(after) })
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

// remapped passes on changes of a Peer or an Advertisement by which its pods get other addresses here.
func remapped() predicate.Predicate {
	return when(true, true, func(before, after client.Object) bool { return podRange(before) != podRange(after) })
}
