package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// lookAgain is how soon a namespace that is in the way is looked at again: nothing tells us when it goes.
const lookAgain = 10 * time.Second

// errOtherRole is returned for a RoleBinding that an administrator must remove: the role of one cannot be changed.
var errOtherRole = errors.New("a RoleBinding of that name binds another role")

// mapper makes the twin namespaces that NamespaceMappings ask for, and removes them.
type mapper struct {
	config Config
	client client.Client
	live   client.Reader
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
	twin, ok, err := m.wanted(ctx, mapping, peer)
	if err != nil || !ok {
		return reconcile.Result{}, err
	}
	if controllerutil.AddFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping) {
		if err := m.client.Update(ctx, mapping); err != nil {
			return reconcile.Result{}, fmt.Errorf("add the finalizer: %w", err)
		}
	}
	found, err := m.ensure(ctx, twin)
	if err != nil {
		return reconcile.Result{}, err
	}
	return found.retry(), m.report(ctx, mapping, found)
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

// wanted returns the twin that the mapping asks for, unless the peer may not run pods here.
func (m *mapper) wanted(ctx context.Context, mapping *v1alpha1.NamespaceMapping, name string) (twinOf, bool, error) {
	peer := &v1alpha1.Peer{}
	if err := m.client.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
		return twinOf{}, false, client.IgnoreNotFound(err)
	}
	if !peer.DeletionTimestamp.IsZero() || !peer.HasRole(v1alpha1.RoleConsumer) {
		return twinOf{}, false, nil
	}
	return twinOf{peer: name, clusterID: peer.Spec.ClusterID, home: mapping.Spec.HomeNamespace}, true, nil
}

// ensure makes the twin and its bindings, or finds out why it cannot.
func (m *mapper) ensure(ctx context.Context, twin twinOf) (finding, error) {
	if len(validation.IsDNS1123Label(twin.home)) > 0 || forbidden(twin.home, m.config.Namespace) {
		return finding{reason: v1alpha1.ReasonNamespaceForbidden}, nil
	}
	found := finding{twin: twin.name()}
	ns := &corev1.Namespace{}
	err := m.live.Get(ctx, client.ObjectKey{Name: found.twin}, ns)
	if apierrors.IsNotFound(err) {
		ns = twin.namespace()
		if err := m.client.Create(ctx, ns); err != nil {
			return found, fmt.Errorf("create namespace %s: %w", ns.Name, err)
		}
	} else if err != nil {
		return found, fmt.Errorf("read namespace %s: %w", found.twin, err)
	}
	switch {
	case !twin.owns(ns):
		found.reason = v1alpha1.ReasonNamespaceTaken
		return found, nil
	case !ns.DeletionTimestamp.IsZero():
		found.reason = v1alpha1.ReasonNamespaceTerminating
		return found, nil
	}
	found.reason = v1alpha1.ReasonTwinCreated
	return found, m.secure(ctx, twin, ns)
}

// secure gives the twin its level of Pod Security back, and its bindings.
func (m *mapper) secure(ctx context.Context, twin twinOf, ns *corev1.Namespace) error {
	if ns.Labels[labelEnforce] == "" {
		before := ns.DeepCopy()
		ns.Labels[labelEnforce] = levelBaseline
		if err := m.client.Patch(ctx, ns, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("label namespace %s: %w", ns.Name, err)
		}
	}
	for _, binding := range twin.bindings(&m.config) {
		if err := m.bind(ctx, binding); err != nil {
			return fmt.Errorf("bind role %s in namespace %s: %w", binding.Name, binding.Namespace, err)
		}
	}
	return nil
}

func (m *mapper) bind(ctx context.Context, want *rbacv1.RoleBinding) error {
	have := &rbacv1.RoleBinding{}
	err := m.live.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) {
		return m.client.Create(ctx, want)
	}
	if err != nil {
		return err
	}
	if have.RoleRef != want.RoleRef {
		return errOtherRole
	}
	if equality.Semantic.DeepEqual(have.Subjects, want.Subjects) {
		return nil
	}
	have.Subjects = want.Subjects
	return m.client.Update(ctx, have)
}

// remove deletes the twin and lets the mapping go when it is gone.
func (m *mapper) remove(
	ctx context.Context, mapping *v1alpha1.NamespaceMapping, peer string,
) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping) {
		return reconcile.Result{}, nil
	}
	name := TwinName(peer, mapping.Spec.HomeNamespace)
	ns := &corev1.Namespace{}
	err := m.live.Get(ctx, client.ObjectKey{Name: name}, ns)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	// The Peer may be gone by now, so the namespace itself has to say that it is this peer's twin.
	if twin, ok := twinIn(ns); err == nil && ok && twin.peer == peer && twin.home == mapping.Spec.HomeNamespace {
		return reconcile.Result{RequeueAfter: lookAgain}, deleteNamespace(ctx, m.client, ns)
	}
	controllerutil.RemoveFinalizer(mapping, v1alpha1.FinalizerNamespaceMapping)
	if err := m.client.Update(ctx, mapping); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove the finalizer: %w", err)
	}
	return reconcile.Result{}, nil
}

func deleteNamespace(ctx context.Context, c client.Client, ns *corev1.Namespace) error {
	if !ns.DeletionTimestamp.IsZero() {
		return nil
	}
	err := c.Delete(ctx, ns, client.Preconditions{UID: &ns.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace %s: %w", ns.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleting twin namespace", "Namespace", ns.Name)
	return nil
}
