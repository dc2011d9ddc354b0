package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// repairPeriod is how long something that was deleted or changed in a tenant namespace may stay so: what lies in there
// is not watched, because that needs rights in all namespaces.
const repairPeriod = time.Minute

// settleTime is how long it may take until rights that were bound in a new namespace are known to the API server.
const settleTime = 10 * time.Second

// tenantState is how a tenant namespace stands.
type tenantState int

const (
	tenantReady tenantState = iota
	// tenantTaken: a namespace of that name is not the tenant namespace of this peer.
	tenantTaken
	// tenantTerminating: it is being deleted, so that a new one can be made only after that.
	tenantTerminating
	// tenantUnsettled: it was just made, and the API server does not know our rights in it yet.
	tenantUnsettled
	// tenantFailed: the API server refused something.
	tenantFailed
)

// tenants keep the tenant namespaces and what lies in them.
type tenants struct {
	config Config
	client client.Client // cached; sees namespaces and messages
	direct client.Client // not cached; for all that Hanse may read in tenant namespaces only
}

// A tenantVersion says what a tenant namespace was last made to look like, and when.
type tenantVersion struct {
	peer       types.UID
	generation int64
	namespace  types.UID
	at         time.Time
}

// ensure makes the tenant namespace of the peer and what belongs in it. What has been done is kept in done, so that it
// need not be looked at again with every probe.
func (t *tenants) ensure(ctx context.Context, peer *v1alpha1.Peer, done *tenantVersion) (tenantState, error) {
	ns, err := t.ensureNamespace(ctx, peer)
	if err != nil {
		return tenantFailed, err
	}
	if state := stateOf(ns, peer); state != tenantReady {
		*done = tenantVersion{}
		return state, nil
	}
	now := tenantVersion{peer: peer.UID, generation: peer.Generation, namespace: ns.UID, at: t.config.Clock.Now()}
	last := *done
	last.at = now.at
	if last == now && now.at.Sub(done.at) < repairPeriod {
		return tenantReady, nil
	}
	if err := t.furnish(ctx, peer, ns); err != nil {
		*done = tenantVersion{}
		if apierrors.IsForbidden(err) && now.at.Sub(ns.CreationTimestamp.Time) < settleTime {
			return tenantUnsettled, nil
		}
		return tenantFailed, err
	}
	*done = now
	return tenantReady, nil
}

func (t *tenants) ensureNamespace(ctx context.Context, peer *v1alpha1.Peer) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := t.client.Get(ctx, client.ObjectKey{Name: v1alpha1.TenantNamespace(peer.Name)}, ns)
	if err == nil {
		return ns, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read namespace: %w", err)
	}
	ns = tenantNamespace(peer)
	err = t.client.Create(ctx, ns)
	if apierrors.IsAlreadyExists(err) { // the cache is behind
		err = t.direct.Get(ctx, client.ObjectKeyFromObject(ns), ns)
	}
	if err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	return ns, nil
}

func stateOf(ns *corev1.Namespace, peer *v1alpha1.Peer) tenantState {
	switch {
	case !owns(peer, ns):
		return tenantTaken
	case !ns.DeletionTimestamp.IsZero():
		return tenantTerminating
	default:
		return tenantReady
	}
}

// owns reports whether ns is the tenant namespace of exactly this peer. That of a former peer of the same name holds
// credentials and messages of another cluster.
func owns(peer *v1alpha1.Peer, ns *corev1.Namespace) bool {
	for key, value := range tenantNamespace(peer).Labels {
		if ns.Labels[key] != value {
			return false
		}
	}
	return true
}

func tenantNamespace(peer *v1alpha1.Peer) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.TenantNamespace(peer.Name),
		Labels: map[string]string{
			v1alpha1.LabelType:      v1alpha1.TypeTenant,
			v1alpha1.LabelPeer:      peer.Name,
			v1alpha1.LabelClusterID: peer.Spec.ClusterID,
			v1alpha1.LabelManaged:   "true",
		},
	}}
}

// furnish makes what belongs in the tenant namespace. The bindings of our own service accounts come first: they are
// what gives the right to the rest.
func (t *tenants) furnish(ctx context.Context, peer *v1alpha1.Peer, ns *corev1.Namespace) error {
	manager := t.ownSubject(t.config.ManagerServiceAccount)
	kubelet := t.ownSubject(t.config.KubeletServiceAccount)
	err := errors.Join(
		t.bind(ctx, ns.Name, v1alpha1.ClusterRoleManagerInTenant, manager),
		t.bind(ctx, ns.Name, v1alpha1.ClusterRoleKubeletInTenant, kubelet),
	)
	if err != nil {
		return err
	}
	if !peer.HasRole(v1alpha1.RoleConsumer) {
		return t.disown(ctx, ns.Name)
	}
	return t.admit(ctx, peer, ns.Name)
}

// admit gives the peer its identity and rights here, and introduces this cluster to it.
func (t *tenants) admit(ctx context.Context, peer *v1alpha1.Peer, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: v1alpha1.PeerServiceAccount,
	}}
	info := clusterInfo(namespace)
	return errors.Join(
		t.put(ctx, account, func() {
			setLabel(account, v1alpha1.LabelPeer, peer.Name)
			account.AutomountServiceAccountToken = ptr.To(false)
		}),
		t.bind(ctx, namespace, v1alpha1.ClusterRolePeerTenant, rbacv1.Subject{
			Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: v1alpha1.PeerServiceAccount,
		}),
		t.put(ctx, info, func() {
			info.Data = map[string]string{
				v1alpha1.ClusterInfoID: t.config.ClusterID, v1alpha1.ClusterInfoVersion: t.config.Version,
			}
		}),
	)
}

// disown takes away what a consumer has here: its tokens end with its service account. Its binding is emptied and not
// deleted, since that is all that Hanse may do with bindings.
func (t *tenants) disown(ctx context.Context, namespace string) error {
	binding := &rbacv1.RoleBinding{}
	err := t.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ClusterRolePeerTenant}, binding)
	if err == nil && len(binding.Subjects) > 0 {
		err = t.bind(ctx, namespace, v1alpha1.ClusterRolePeerTenant)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: v1alpha1.PeerServiceAccount,
	}}
	return errors.Join(
		client.IgnoreNotFound(err), t.remove(ctx, account), t.remove(ctx, clusterInfo(namespace)),
	)
}

func clusterInfo(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ClusterInfo}}
}

func (t *tenants) ownSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: t.config.Namespace, Name: name}
}

// bind gives the subjects the rights of the ClusterRole in the namespace, by a RoleBinding of the role's name.
func (t *tenants) bind(ctx context.Context, namespace, role string, subjects ...rbacv1.Subject) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}}
	return t.put(ctx, binding, func() {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if !equality.Semantic.DeepEqual(binding.Subjects, subjects) {
			binding.Subjects = subjects
		}
	})
}

// put makes the object as mutate says, and writes only what is not so yet.
func (t *tenants) put(ctx context.Context, object client.Object, mutate func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, t.direct, object, func() error {
		setLabel(object, v1alpha1.LabelManaged, "true")
		mutate()
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

func setLabel(object client.Object, key, value string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	object.SetLabels(labels)
}

func (t *tenants) remove(ctx context.Context, object client.Object) error {
	err := t.direct.Get(ctx, client.ObjectKeyFromObject(object), object)
	if err == nil {
		err = t.direct.Delete(ctx, object)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
