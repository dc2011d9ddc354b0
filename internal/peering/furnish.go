package peering

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// quotaName is what every ResourceQuota of Hanse's is called.
const quotaName = "hanse"

// countMappings is the name under which a quota counts what a consumer may make in its tenant namespace. Of PeeringClaims
// there can be only one anyway.
const countMappings = corev1.ResourceName("count/namespacemappings.hanse.dev")

// furnish makes what belongs in the tenant namespace. The bindings of our own service accounts come first: they are
// what gives the right to the rest. What a mere provider must not have is taken away if clean says so.
func (t *tenants) furnish(ctx context.Context, peer *v1alpha1.Peer, ns *corev1.Namespace, clean bool) error {
	manager := t.ownSubject(t.config.ManagerServiceAccount)
	kubelet := t.ownSubject(t.config.KubeletServiceAccount)
	err := errors.Join(
		t.bind(ctx, ns.Name, v1alpha1.ClusterRoleManagerInTenant, manager),
		t.bind(ctx, ns.Name, v1alpha1.ClusterRoleKubeletInTenant, kubelet),
	)
	if err != nil {
		return err
	}
	switch {
	case peer.HasRole(v1alpha1.RoleConsumer):
		return t.receive(ctx, peer, ns.Name)
	case clean:
		return t.disown(ctx, ns.Name)
	default:
		return nil
	}
}

// receive introduces this cluster to a consumer, and bounds what the consumer can make. Who the consumer is and what it
// may do is the matter of its invitation.
func (t *tenants) receive(ctx context.Context, peer *v1alpha1.Peer, namespace string) error {
	info := clusterInfo(namespace)
	return errors.Join(
		t.put(ctx, info, func() { info.Data = t.config.introduction() }),
		t.bound(ctx, peer, namespace),
		t.keepSample(ctx, namespace),
	)
}

// bound limits the number of objects that the peer makes, as soon as Kubernetes can count them.
func (t *tenants) bound(ctx context.Context, peer *v1alpha1.Peer, namespace string) error {
	if wait, err := t.counting.Wait(ctx); err != nil || wait > 0 {
		return err
	}
	quota := tenantQuota(namespace)
	hard := corev1.ResourceList{countMappings: *resource.NewQuantity(int64(namespacesOf(peer)), resource.DecimalSI)}
	return t.put(ctx, quota, func() {
		if !equality.Semantic.DeepEqual(quota.Spec.Hard, hard) {
			quota.Spec.Hard = hard
		}
	})
}

// namespacesOf is how many namespaces the peer may have here.
func namespacesOf(peer *v1alpha1.Peer) int32 {
	if peer.Spec.Limits == nil {
		return v1alpha1.DefaultLimitNamespaces
	}
	return ptr.Deref(peer.Spec.Limits.Namespaces, v1alpha1.DefaultLimitNamespaces)
}

// disown takes away what a consumer has here, but for what it is advertised and for its twins, which are others'. All
// its tokens end.
func (t *tenants) disown(ctx context.Context, namespace string) error {
	return errors.Join(
		t.unbind(ctx, namespace, v1alpha1.ClusterRolePeerTenant, v1alpha1.ClusterRolePeerInvitation),
		t.remove(
			ctx,
			serviceAccount(namespace, v1alpha1.PeerServiceAccount),
			serviceAccount(namespace, v1alpha1.InvitationServiceAccount),
			secret(namespace, v1alpha1.SessionSecret),
			secret(namespace, v1alpha1.InvitationSecret),
			claim(namespace), clusterInfo(namespace), bandwidthSample(namespace), tenantQuota(namespace),
		),
	)
}

func serviceAccount(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func claim(namespace string) *v1alpha1.PeeringClaim {
	return &v1alpha1.PeeringClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.PeeringClaimName}}
}

func clusterInfo(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ClusterInfo}}
}

func tenantQuota(namespace string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: quotaName}}
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

// unbind takes the rights of the ClusterRoles in the namespace from whoever has them. The bindings are emptied and not
// deleted, since that is all that Hanse may do with bindings.
func (t *tenants) unbind(ctx context.Context, namespace string, roles ...string) error {
	var problems []error
	for _, role := range roles {
		binding := &rbacv1.RoleBinding{}
		err := t.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: role}, binding)
		if err == nil && len(binding.Subjects) > 0 {
			err = t.bind(ctx, namespace, role)
		}
		problems = append(problems, client.IgnoreNotFound(err))
	}
	return errors.Join(problems...)
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

// remove deletes those of the objects that exist.
func (t *tenants) remove(ctx context.Context, objects ...client.Object) error {
	var problems []error
	for _, object := range objects {
		err := t.direct.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && object.GetDeletionTimestamp().IsZero() {
			err = t.direct.Delete(ctx, object)
		}
		if client.IgnoreNotFound(err) != nil {
			problems = append(problems, fmt.Errorf("delete %T %s: %w", object, object.GetName(), err))
		}
	}
	return errors.Join(problems...)
}

// exists reports whether the object is there, and reads it.
func (t *tenants) exists(ctx context.Context, object client.Object) (bool, error) {
	err := t.direct.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %T %s: %w", object, object.GetName(), err)
	}
	return true, nil
}
