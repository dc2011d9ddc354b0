package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
)

// lookAgain is how soon a namespace that is in the way is looked at again: nothing tells us when it goes.
const lookAgain = 10 * time.Second

// mappingReconciler makes the twin namespaces that NamespaceMappings ask for, and removes those that none asks for.
type mappingReconciler struct {
	config   Config
	client   client.Client
	live     client.Reader
	counting *local.Counting
	creating sync.Mutex
}

func newMappingReconciler(cfg Config, c client.Client, live client.Reader) *mappingReconciler {
	return &mappingReconciler{config: cfg, client: c, live: live, counting: local.NewCounting(c, cfg.Namespace)}
}

// mappingFacts are what there is of one home namespace of a peer.
type mappingFacts struct {
	peer     string                     // whose tenant namespace the mapping's is, or would be
	mapping  *v1alpha1.NamespaceMapping // nil if there is none in a tenant namespace
	consumer *v1alpha1.Peer             // nil if the peer may not run pods here
}

// Reconcile brings one NamespaceMapping and its twin in line. The mapping may be gone, and its twin not yet.
func (r *mappingReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	seen, err := r.observe(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.removeOrphans(ctx, seen, request.Name); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case seen.mapping == nil:
		return reconcile.Result{}, nil
	case !seen.mapping.DeletionTimestamp.IsZero():
		return r.remove(ctx, seen)
	case seen.consumer == nil:
		return reconcile.Result{}, nil
	}
	if err := r.hold(ctx, seen.mapping); err != nil {
		return reconcile.Result{}, err
	}
	// This is asked before the quota is made, since the time may be over right after.
	uncounted, countErr := r.counting.Wait(ctx)
	found, err := r.ensure(ctx, seen.mapping, seen.consumer)
	if err := errors.Join(err, countErr); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.report(ctx, seen.mapping, found); err != nil {
		return reconcile.Result{}, err
	}
	again := r.again(seen.mapping, found)
	if found.ready() {
		again = uncounted
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// observe reads the mapping of that name and its peer.
func (r *mappingReconciler) observe(ctx context.Context, name types.NamespacedName) (mappingFacts, error) {
	seen := mappingFacts{peer: strings.TrimPrefix(name.Namespace, v1alpha1.TenantNamespacePrefix)}
	mapping, tenant, peer := &v1alpha1.NamespaceMapping{}, &corev1.Namespace{}, &v1alpha1.Peer{}
	hasMapping, err := r.find(ctx, name, mapping)
	if err != nil {
		return seen, err
	}
	hasTenant, err := r.find(ctx, types.NamespacedName{Name: name.Namespace}, tenant)
	if err != nil {
		return seen, err
	}
	isTenant := tenant.Labels[v1alpha1.LabelType] == v1alpha1.TypeTenant &&
		v1alpha1.TenantNamespace(tenant.Labels[v1alpha1.LabelPeer]) == name.Namespace
	if hasMapping && hasTenant && isTenant {
		seen.mapping = mapping
	}
	hasPeer, err := r.find(ctx, types.NamespacedName{Name: seen.peer}, peer)
	if hasPeer && peer.DeletionTimestamp.IsZero() && peer.HasRole(v1alpha1.RoleConsumer) && peer.Spec.ClusterID != "" {
		seen.consumer = peer
	}
	return seen, err
}

// find reads an object and reports whether there is one.
func (r *mappingReconciler) find(ctx context.Context, name types.NamespacedName, into client.Object) (bool, error) {
	err := r.client.Get(ctx, name, into)
	return err == nil, client.IgnoreNotFound(err)
}

// hold puts the finalizer on the mapping.
func (r *mappingReconciler) hold(ctx context.Context, mapping *v1alpha1.NamespaceMapping) error {
	if !controllerutil.AddFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping) {
		return nil
	}
	if err := r.client.Update(ctx, mapping); err != nil {
		return fmt.Errorf("add the finalizer: %w", err)
	}
	fault.Point(fault.MappingHeld)
	return nil
}

// ensure makes the twin and what guards it, or finds out why it cannot.
func (r *mappingReconciler) ensure(
	ctx context.Context, mapping *v1alpha1.NamespaceMapping, peer *v1alpha1.Peer,
) (finding, error) {
	twin := twinFor(peer.Name, peer.Spec.ClusterID, mapping)
	if !r.offloadable(twin.home) {
		return finding{reason: v1alpha1.ReasonNamespaceForbidden}, nil
	}
	found := finding{twin: twin.name()}
	ns := &corev1.Namespace{}
	err := r.live.Get(ctx, client.ObjectKey{Name: found.twin}, ns)
	// A twin that exists stays, whatever names the peer may choose by now. Of other namespaces with names that it may not
	// choose, a peer does not learn whether they exist.
	granted := twin.granted(peer.Spec.TwinNames, r.config.Namespace)
	if !granted && (apierrors.IsNotFound(err) || err == nil && !twin.owns(ns)) {
		found.reason = v1alpha1.ReasonTwinNameForbidden
		return found, nil
	}
	if apierrors.IsNotFound(err) {
		ns, err = r.create(ctx, mapping, peer, twin)
	}
	switch {
	case err != nil:
		return found, fmt.Errorf("namespace %s: %w", found.twin, err)
	case ns == nil:
		found.reason = v1alpha1.ReasonLimitExceeded
	case !twin.owns(ns):
		found.reason = v1alpha1.ReasonNamespaceTaken
	case !ns.DeletionTimestamp.IsZero():
		found.reason = v1alpha1.ReasonNamespaceTerminating
	default:
		found.reason, err = r.secure(ctx, twin, peer, ns)
	}
	return found, err
}

func (r *mappingReconciler) offloadable(home string) bool {
	return len(validation.IsDNS1123Label(home)) == 0 && !forbidden(home, r.config.Namespace)
}

// create makes the namespace, and returns nil if the peer has as many as it may have. It is done by one at a time, so
// that two do not take the last place.
func (r *mappingReconciler) create(
	ctx context.Context, mapping *v1alpha1.NamespaceMapping, peer *v1alpha1.Peer, twin twinOf,
) (*corev1.Namespace, error) {
	r.creating.Lock()
	defer r.creating.Unlock()
	room, err := r.room(ctx, mapping, peer)
	if err != nil || !room {
		return nil, err
	}
	ns := twin.namespace(peer.Spec.PodSecurity)
	err = r.client.Create(ctx, ns)
	fault.Point(fault.TwinCreated)
	return ns, err
}

// room says whether the peer may have one more twin, and none of its other mappings has waited longer for it.
func (r *mappingReconciler) room(ctx context.Context, mapping *v1alpha1.NamespaceMapping, peer *v1alpha1.Peer) (bool, error) {
	twins, err := twinsOf(ctx, r.live, peer.Name)
	if err != nil {
		return false, err
	}
	exists := map[string]bool{}
	for i := range twins {
		exists[twins[i].Name] = true
	}
	mappings := &v1alpha1.NamespaceMappingList{}
	if err := r.client.List(ctx, mappings, client.InNamespace(mapping.Namespace)); err != nil {
		return false, fmt.Errorf("list the peer's NamespaceMappings: %w", err)
	}
	before := len(exists)
	for i := range mappings.Items {
		other := &mappings.Items[i]
		twin := twinFor(peer.Name, peer.Spec.ClusterID, other)
		if r.offloadable(twin.home) && twin.granted(peer.Spec.TwinNames, r.config.Namespace) && !exists[twin.name()] &&
			other.DeletionTimestamp.IsZero() && older(other, mapping) {
			before++
		}
	}
	return before < int(ptr.Deref(limitsOf(peer).Namespaces, v1alpha1.DefaultLimitNamespaces)), nil
}

// twinsOf returns the twin namespaces of the peer.
func twinsOf(ctx context.Context, reader client.Reader, peer string) ([]corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	err := reader.List(ctx, list, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer})
	if err != nil {
		return nil, fmt.Errorf("list the twins of peer %s: %w", peer, err)
	}
	return list.Items, nil
}

func older(a, b *v1alpha1.NamespaceMapping) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// remove deletes the twin and lets the mapping go when the twin is gone.
func (r *mappingReconciler) remove(ctx context.Context, seen mappingFacts) (reconcile.Result, error) {
	mapping := seen.mapping
	if !controllerutil.ContainsFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping) {
		return reconcile.Result{}, nil
	}
	name := twinFor(seen.peer, "", mapping).name()
	ns := &corev1.Namespace{}
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, ns)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	// The Peer may be gone by now, so the namespace itself has to say that it is this peer's twin.
	if twin, ok := twinIn(ns); err == nil && ok && twin.peer == seen.peer && twin.home == mapping.Spec.HomeNamespace {
		grace := removalGrace
		if seen.consumer == nil {
			grace = leavingGrace
		}
		return reconcile.Result{RequeueAfter: lookAgain}, r.removeTwin(ctx, ns, grace)
	}
	fault.Point(fault.BeforeUnmapping)
	controllerutil.RemoveFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping)
	if err := r.client.Update(ctx, mapping); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove the finalizer: %w", err)
	}
	return reconcile.Result{}, nil
}

// removeOrphans removes twins of the home namespace that nobody asks for any more: their Peer is gone, or their
// NamespaceMapping went without its finalizer.
func (r *mappingReconciler) removeOrphans(ctx context.Context, seen mappingFacts, home string) error {
	twins, err := twinsOf(ctx, r.client, seen.peer)
	if err != nil {
		return err
	}
	for i := range twins {
		ns := &twins[i]
		twin, ok := twinIn(ns)
		if !ok || twin.home != home || !ns.DeletionTimestamp.IsZero() || wants(seen.consumer, seen.mapping, twin) {
			continue
		}
		needed, err := r.needed(ctx, twin)
		if err == nil && !needed {
			err = r.removeTwin(ctx, ns, leavingGrace)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wants says whether the Peer and its NamespaceMapping, which both may be nil, ask for this twin.
func wants(peer *v1alpha1.Peer, mapping *v1alpha1.NamespaceMapping, twin twinOf) bool {
	return peer != nil && peer.HasRole(v1alpha1.RoleConsumer) && peer.Spec.ClusterID == twin.clusterID &&
		mapping != nil && twinFor(twin.peer, twin.clusterID, mapping).name() == twin.name()
}

// needed asks the API server itself, because a cache that lags would cost running pods. A Peer that is being deleted still
// needs its twins: they go when its NamespaceMappings are taken away.
func (r *mappingReconciler) needed(ctx context.Context, twin twinOf) (bool, error) {
	peer, mapping := &v1alpha1.Peer{}, &v1alpha1.NamespaceMapping{}
	err := r.live.Get(ctx, client.ObjectKey{Name: twin.peer}, peer)
	if err == nil {
		err = r.live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(twin.peer), Name: twin.home}, mapping)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read who asks for namespace %s: %w", twin.name(), err)
	}
	return wants(peer, mapping, twin), nil
}

// How long the pods of a twin that goes may take to end. A peer chooses the grace of its pods, and could keep its twins for
// years by a long one.
const (
	leavingGrace = 30 * time.Second
	removalGrace = time.Hour
)

// removeTwin deletes the namespace, and before that those pods that would take longer than the grace to end. The others
// end with the namespace.
func (r *mappingReconciler) removeTwin(ctx context.Context, ns *corev1.Namespace, grace time.Duration) error {
	if err := shortenGrace(ctx, r.client, ns.Name, grace); err != nil {
		return err
	}
	return deleteNamespace(ctx, r.client, ns)
}

func deleteNamespace(ctx context.Context, c client.Client, ns *corev1.Namespace) error {
	if !ns.DeletionTimestamp.IsZero() {
		return nil
	}
	err := c.Delete(ctx, ns, client.Preconditions{UID: &ns.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace %s: %w", ns.Name, err)
	}
	fault.Point(fault.TwinDeleted)
	ctrl.LoggerFrom(ctx).Info("Deleting twin namespace", "Namespace", ns.Name)
	return nil
}

// shortenGrace ends those pods of a twin that would take longer than so long to end. The others end with the namespace.
func shortenGrace(ctx context.Context, c client.Client, namespace string, atMost time.Duration) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the pods in namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if graceOf(pod) <= atMost {
			continue
		}
		err := c.Delete(ctx, pod.DeepCopy(), &client.DeleteOptions{
			Preconditions:      &metav1.Preconditions{UID: &pod.UID},
			GracePeriodSeconds: ptr.To(int64(atMost / time.Second)),
		})
		// In a namespace that is going, our right to do this may have gone first.
		if ignoreStale(err) != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("end pod %s/%s: %w", namespace, pod.Name, err)
		}
	}
	return nil
}

// graceOf returns how long the pod may take to end.
func graceOf(pod *corev1.Pod) time.Duration {
	grace := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	// More seconds than a Duration can hold are many.
	return time.Duration(min(grace, int64(24*time.Hour/time.Second))) * time.Second
}
