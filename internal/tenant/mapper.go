package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// mapper makes the twin namespaces that NamespaceMappings ask for, and removes them.
type mapper struct {
	config   Config
	client   client.Client
	live     client.Reader
	counting *local.Counting
	creating sync.Mutex
}

func newMapper(cfg Config, c client.Client, live client.Reader) *mapper {
	return &mapper{config: cfg, client: c, live: live, counting: local.NewCounting(c, cfg.Namespace)}
}

// Reconcile brings one NamespaceMapping and its twin in line.
func (m *mapper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	mapping := &v1alpha1.NamespaceMapping{}
	if err := m.client.Get(ctx, request.NamespacedName, mapping); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	peer, err := m.peerOf(ctx, mapping.Namespace)
	if err != nil || peer == "" {
		return reconcile.Result{}, err
	}
	if !mapping.DeletionTimestamp.IsZero() {
		return m.remove(ctx, mapping, peer)
	}
	consumer, err := m.consumer(ctx, peer)
	if err != nil || consumer == nil {
		return reconcile.Result{}, err
	}
	if controllerutil.AddFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping) {
		if err := m.client.Update(ctx, mapping); err != nil {
			return reconcile.Result{}, fmt.Errorf("add the finalizer: %w", err)
		}
		fault.Point(fault.MappingHeld)
	}
	// This is asked before the quota is made, since the time may be over right after.
	uncounted, countErr := m.counting.Wait(ctx)
	found, err := m.ensure(ctx, mapping, consumer)
	if err := errors.Join(err, countErr); err != nil {
		return reconcile.Result{}, err
	}
	if err := m.report(ctx, mapping, found); err != nil {
		return reconcile.Result{}, err
	}
	again := m.again(mapping, found)
	if found.ready() {
		again = uncounted
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// peerOf returns the peer whose tenant namespace this is, and "" if it is none.
func (m *mapper) peerOf(ctx context.Context, namespace string) (string, error) {
	ns := &corev1.Namespace{}
	if err := m.client.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	peer := ns.Labels[v1alpha1.LabelPeer]
	if ns.Labels[v1alpha1.LabelType] != v1alpha1.TypeTenant || v1alpha1.TenantNamespace(peer) != namespace {
		return "", nil
	}
	return peer, nil
}

// consumer returns the Peer, and nil if it may not run pods here.
func (m *mapper) consumer(ctx context.Context, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	if err := m.client.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !peer.DeletionTimestamp.IsZero() || !peer.HasRole(v1alpha1.RoleConsumer) || peer.Spec.ClusterID == "" {
		return nil, nil
	}
	return peer, nil
}

// ensure makes the twin and what guards it, or finds out why it cannot.
func (m *mapper) ensure(
	ctx context.Context, mapping *v1alpha1.NamespaceMapping, peer *v1alpha1.Peer,
) (finding, error) {
	twin := twinFor(peer.Name, peer.Spec.ClusterID, mapping)
	if !m.offloadable(twin.home) {
		return finding{reason: v1alpha1.ReasonNamespaceForbidden}, nil
	}
	found := finding{twin: twin.name()}
	ns := &corev1.Namespace{}
	err := m.live.Get(ctx, client.ObjectKey{Name: found.twin}, ns)
	// A twin that exists stays, whatever names the peer may choose by now. Of other namespaces with names that it may not
	// choose, a peer does not learn whether they exist.
	granted := twin.granted(peer.Spec.TwinNames, m.config.Namespace)
	if !granted && (apierrors.IsNotFound(err) || err == nil && !twin.owns(ns)) {
		found.reason = v1alpha1.ReasonTwinNameForbidden
		return found, nil
	}
	if apierrors.IsNotFound(err) {
		ns, err = m.create(ctx, mapping, peer, twin)
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
		found.reason, err = m.secure(ctx, twin, peer, ns)
	}
	return found, err
}

func (m *mapper) offloadable(home string) bool {
	return len(validation.IsDNS1123Label(home)) == 0 && !forbidden(home, m.config.Namespace)
}

// create makes the namespace, and returns nil if the peer has as many as it may have. It is done by one at a time, so
// that two do not take the last place.
func (m *mapper) create(
	ctx context.Context, mapping *v1alpha1.NamespaceMapping, peer *v1alpha1.Peer, twin twinOf,
) (*corev1.Namespace, error) {
	m.creating.Lock()
	defer m.creating.Unlock()
	room, err := m.room(ctx, mapping, peer)
	if err != nil || !room {
		return nil, err
	}
	ns := twin.namespace(peer.Spec.PodSecurity)
	err = m.client.Create(ctx, ns)
	fault.Point(fault.TwinCreated)
	return ns, err
}

// room says whether the peer may have one more twin, and none of its other mappings has waited longer for it.
func (m *mapper) room(ctx context.Context, mapping *v1alpha1.NamespaceMapping, peer *v1alpha1.Peer) (bool, error) {
	twins := &corev1.NamespaceList{}
	err := m.live.List(ctx, twins, client.MatchingLabels{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer.Name,
	})
	if err != nil {
		return false, fmt.Errorf("list the peer's twins: %w", err)
	}
	exists := map[string]bool{}
	for i := range twins.Items {
		exists[twins.Items[i].Name] = true
	}
	mappings := &v1alpha1.NamespaceMappingList{}
	if err := m.client.List(ctx, mappings, client.InNamespace(mapping.Namespace)); err != nil {
		return false, fmt.Errorf("list the peer's NamespaceMappings: %w", err)
	}
	before := len(exists)
	for i := range mappings.Items {
		other := &mappings.Items[i]
		twin := twinFor(peer.Name, peer.Spec.ClusterID, other)
		if m.offloadable(twin.home) && twin.granted(peer.Spec.TwinNames, m.config.Namespace) && !exists[twin.name()] &&
			other.DeletionTimestamp.IsZero() && older(other, mapping) {
			before++
		}
	}
	return before < int(ptr.Deref(limitsOf(peer).Namespaces, v1alpha1.DefaultLimitNamespaces)), nil
}

func older(a, b *v1alpha1.NamespaceMapping) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// remove deletes the twin and lets the mapping go when it is gone.
func (m *mapper) remove(
	ctx context.Context, mapping *v1alpha1.NamespaceMapping, peer string,
) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping) {
		return reconcile.Result{}, nil
	}
	name := twinFor(peer, "", mapping).name()
	ns := &corev1.Namespace{}
	err := m.live.Get(ctx, client.ObjectKey{Name: name}, ns)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	// The Peer may be gone by now, so the namespace itself has to say that it is this peer's twin.
	if twin, ok := twinIn(ns); err == nil && ok && twin.peer == peer && twin.home == mapping.Spec.HomeNamespace {
		if err := m.hurry(ctx, peer, ns.Name); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{RequeueAfter: lookAgain}, deleteNamespace(ctx, m.client, ns)
	}
	fault.Point(fault.BeforeUnmapping)
	controllerutil.RemoveFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping)
	if err := m.client.Update(ctx, mapping); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove the finalizer: %w", err)
	}
	return reconcile.Result{}, nil
}

// hurry ends the pods of a twin that goes: soon if we part from the peer.
func (m *mapper) hurry(ctx context.Context, peer, namespace string) error {
	consumer, err := m.consumer(ctx, peer)
	if err != nil {
		return err
	}
	grace := removalGrace
	if consumer == nil {
		grace = partingGrace
	}
	return hurry(ctx, m.client, namespace, grace)
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
