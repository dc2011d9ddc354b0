// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
)

// lookAgain is how soon a namespace that is in the way is looked at again: nothing tells us when it goes.
const lookAgain = 10 * time.Second

// mappingReconciler makes the twin namespaces that NamespaceMappings ask for, and removes those that none asks for.
type mappingReconciler struct {
	config    Config
	client    client.Client
	live      client.Reader
	counting  *local.Counting
	creating  sync.Mutex
	guarding  guarding
	occupancy occupancy
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
	left, err := r.removeTwins(ctx, seen, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case seen.ending() && left:
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	case seen.ending():
		fault.Point(fault.BeforeUnmapping)
		return reconcile.Result{}, local.IgnoreStale(release(ctx, r.client, seen.mapping, v1alpha1.FinalizerNamespaceMapping))
	case seen.mapping == nil || seen.consumer == nil:
		r.guarding.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err := hold(ctx, r.client, seen.mapping, v1alpha1.FinalizerNamespaceMapping); err != nil {
		return reconcile.Result{}, err
	}
	fault.Point(fault.MappingHeld)
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
		again = sooner(uncounted, r.guarding.due(request.NamespacedName).Sub(r.config.Clock.Now()))
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// ending says whether the mapping is being deleted.
func (m *mappingFacts) ending() bool {
	return m.mapping != nil && !m.mapping.DeletionTimestamp.IsZero()
}

// observe reads the mapping of that name and its peer.
func (r *mappingReconciler) observe(ctx context.Context, name types.NamespacedName) (mappingFacts, error) {
	seen := mappingFacts{peer: strings.TrimPrefix(name.Namespace, v1alpha1.TenantNamespacePrefix)}
	mapping, tenant, peer := &v1alpha1.NamespaceMapping{}, &corev1.Namespace{}, &v1alpha1.Peer{}
	for _, err := range []error{
		r.client.Get(ctx, name, mapping),
		r.client.Get(ctx, client.ObjectKey{Name: name.Namespace}, tenant),
		r.client.Get(ctx, client.ObjectKey{Name: seen.peer}, peer),
	} {
		if client.IgnoreNotFound(err) != nil {
			return seen, err
		}
	}
	if mapping.Name != "" && tenant.Labels[v1alpha1.LabelType] == v1alpha1.TypeTenant &&
		v1alpha1.TenantNamespace(tenant.Labels[v1alpha1.LabelPeer]) == name.Namespace {
		seen.mapping = mapping
	}
	if peer.DeletionTimestamp.IsZero() && peer.HasRole(v1alpha1.RoleConsumer) && peer.Spec.ClusterID != "" {
		seen.consumer = peer
	}
	return seen, nil
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
	ns, err := r.readTwin(ctx, found.twin)
	// A twin that exists stays, whatever names the peer may choose by now. Of other namespaces with names that it may not
	// choose, a peer does not learn whether they exist.
	granted := twin.granted(peer, r.config.Namespace)
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
		found.reason, err = r.secure(ctx, client.ObjectKeyFromObject(mapping), twin, peer, ns)
	}
	return found, err
}

// readTwin reads a namespace that the cache shows, and that it does not show, which may be new, from the API server itself.
func (r *mappingReconciler) readTwin(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, key := &corev1.Namespace{}, client.ObjectKey{Name: name}
	err := r.client.Get(ctx, key, ns)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, ns)
	}
	return ns, err
}

func (r *mappingReconciler) offloadable(home string) bool {
	return len(validation.IsDNS1123Label(home)) == 0 && !v1alpha1.IsSystemNamespace(home, r.config.Namespace)
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
	if err := r.setLabels(ctx, ns, peer); err != nil {
		return nil, err
	}
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
		if r.offloadable(twin.home) && twin.granted(peer, r.config.Namespace) && !exists[twin.name()] &&
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
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// removeTwins removes twins of the home namespace that nobody asks for any more: their NamespaceMapping is being deleted, or
// went without its finalizer, or their Peer is gone. It reports whether some of them are still there.
func (r *mappingReconciler) removeTwins(ctx context.Context, seen mappingFacts, home string) (left bool, err error) {
	reader, grace := client.Reader(r.client), leavingGrace
	if seen.ending() {
		reader = r.live // the cache may not show a twin that has just been made
		home = seen.mapping.Spec.HomeNamespace
		if seen.consumer != nil {
			grace = removalGrace
		}
	}
	twins, err := twinsOf(ctx, reader, seen.peer)
	if err != nil {
		return false, err
	}
	for i := range twins {
		twin, ok := twinIn(&twins[i])
		if !ok || twin.home != home || wants(seen.consumer, seen.mapping, twin) {
			continue
		}
		// The API server itself is asked, because a cache that lags would cost running pods.
		needed, err := needed(ctx, r.live, twin)
		if err == nil && !needed {
			left = true
			err = r.removeTwin(ctx, &twins[i], grace)
		}
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

// wants says whether the Peer and its NamespaceMapping, which both may be nil, ask for this twin.
func wants(peer *v1alpha1.Peer, mapping *v1alpha1.NamespaceMapping, twin twinOf) bool {
	return peer != nil && peer.HasRole(v1alpha1.RoleConsumer) && peer.Spec.ClusterID == twin.clusterID &&
		mapping != nil && mapping.DeletionTimestamp.IsZero() && twinFor(twin.peer, twin.clusterID, mapping).name() == twin.name()
}

// needed says whether a peer asks for the twin. One that is being deleted still needs its twins: they go when its
// NamespaceMappings are taken away.
func needed(ctx context.Context, reader client.Reader, twin twinOf) (bool, error) {
	peer, mapping := &v1alpha1.Peer{}, &v1alpha1.NamespaceMapping{}
	err := reader.Get(ctx, client.ObjectKey{Name: twin.peer}, peer)
	if err == nil {
		err = reader.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(twin.peer), Name: twin.home}, mapping)
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
	pods := &corev1.PodList{}
	if err := r.client.List(ctx, pods, client.InNamespace(ns.Name)); err != nil {
		return fmt.Errorf("list the pods in namespace %s: %w", ns.Name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if graceOf(pod) <= grace {
			continue
		}
		err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(grace/time.Second))
		if local.IgnoreStale(err) != nil {
			return fmt.Errorf("end pod %s/%s: %w", ns.Name, pod.Name, err)
		}
	}
	if !ns.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := r.client.Delete(ctx, ns, client.Preconditions{UID: &ns.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace %s: %w", ns.Name, err)
	}
	fault.Point(fault.TwinDeleted)
	ctrl.LoggerFrom(ctx).Info("Deleting twin namespace", "Namespace", ns.Name)
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

const (
	// countingRecheck is how soon it is looked again whether a new quota is in force, which is most often at once.
	countingRecheck = 100 * time.Millisecond
	// roomRecheck is for what no event tells: that a NamespaceMapping went which waited before this one.
	roomRecheck = time.Minute
)

// finding is what was found out about a mapping.
type finding struct {
	reason string
	twin   string
}

// findings say by reason what the consumer is told, and when to look again if no event comes.
var findings = map[string]struct {
	message string
	again   time.Duration
}{
	v1alpha1.ReasonNamespaceForbidden: {"Namespaces of a system are not offloaded", 0},
	v1alpha1.ReasonNamespaceTaken:     {"Namespace TWIN exists and is not the twin of this namespace", lookAgain},
	v1alpha1.ReasonTwinNameForbidden: {"The provider does not let this cluster name a namespace TWIN: its administrator can allow it by " +
		"spec.twinNames of the Peer, unless it is a name of the system, or let the provider make the name", 0},
	v1alpha1.ReasonLimitExceeded: {"The provider gives this cluster no more namespaces: it gets this one when another goes, " +
		"or the limit is raised", roomRecheck},
	v1alpha1.ReasonPending:              {"The quota of namespace TWIN is not counted yet", countingRecheck},
	v1alpha1.ReasonNamespaceTerminating: {"Namespace TWIN is being deleted", lookAgain},
}

func (f finding) ready() bool { return f.reason == v1alpha1.ReasonTwinCreated }

// again says when to look again if no event comes.
func (r *mappingReconciler) again(mapping *v1alpha1.NamespaceMapping, found finding) time.Duration {
	again := findings[found.reason].again
	if found.reason == v1alpha1.ReasonPending {
		ready := meta.FindStatusCondition(mapping.Status.Conditions, v1alpha1.ConditionReady)
		return min(max(r.config.Clock.Since(ready.LastTransitionTime.Time)/4, again), lookAgain)
	}
	return again
}

// report writes the status of the mapping, if it changed. A conflict means that the newer copy is on its way to us.
func (r *mappingReconciler) report(ctx context.Context, mapping *v1alpha1.NamespaceMapping, found finding) error {
	before := mapping.DeepCopy()
	mapping.Status.ObservedGeneration = mapping.Generation
	status := metav1.ConditionFalse
	switch {
	case found.ready():
		mapping.Status.Twin = found.twin
		status = metav1.ConditionTrue
	case found.reason != v1alpha1.ReasonPending && found.reason != v1alpha1.ReasonNamespaceTerminating:
		// A twin whose quota is counted anew stays in use, and home follows what ends in one that is being deleted.
		mapping.Status.Twin = ""
	}
	meta.SetStatusCondition(&mapping.Status.Conditions, metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             status,
		ObservedGeneration: mapping.Generation,
		LastTransitionTime: metav1.NewTime(r.config.Clock.Now()),
		Reason:             found.reason,
		Message:            strings.ReplaceAll(findings[found.reason].message, "TWIN", found.twin),
	})
	if equality.Semantic.DeepEqual(before.Status, mapping.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := local.IgnoreStale(r.client.Status().Patch(ctx, mapping, patch)); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
