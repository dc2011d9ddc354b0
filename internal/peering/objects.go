// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
)

// deps are what all steps work with.
type deps struct {
	config   *Config
	client   client.Client // reads from a cache, which has Peers, Nodes, namespaces and messages
	direct   client.Client // reads from the API server itself: Hanse may read most objects of a tenant namespace by name only
	links    *peers.Links
	recorder events.EventRecorder
}

// named returns the object with that name, to be read or made.
func named[T client.Object](object T, namespace, name string) T {
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func serviceAccount(namespace, name string) *corev1.ServiceAccount {
	return named(&corev1.ServiceAccount{}, namespace, name)
}

func secret(namespace, name string) *corev1.Secret { return named(&corev1.Secret{}, namespace, name) }

func configMap(namespace, name string) *corev1.ConfigMap {
	return named(&corev1.ConfigMap{}, namespace, name)
}

func binding(namespace, role string) *rbacv1.RoleBinding {
	return named(&rbacv1.RoleBinding{}, namespace, role)
}

func claim(namespace string) *v1alpha1.PeeringClaim {
	return named(&v1alpha1.PeeringClaim{}, namespace, v1alpha1.PeeringClaimName)
}

// nodeOf is the virtual node of the peer, to be read.
func nodeOf(peer string) *corev1.Node {
	return named(&corev1.Node{}, "", v1alpha1.VirtualNodeName(peer))
}

// namespaceOf is the tenant namespace of the peer, to be read.
func namespaceOf(peer string) *corev1.Namespace {
	return named(&corev1.Namespace{}, "", v1alpha1.TenantNamespace(peer))
}

func tenantQuota(namespace string) *corev1.ResourceQuota {
	return named(&corev1.ResourceQuota{}, namespace, quotaName)
}

// accountSubject is a ServiceAccount as a subject of RoleBindings.
func accountSubject(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// managerSubject is the manager's own service account.
func (d *deps) managerSubject() rbacv1.Subject {
	return accountSubject(d.config.Namespace, d.config.ManagerServiceAccount)
}

// bind gives the subjects the rights of the ClusterRole in the namespace, by a RoleBinding of the role's name.
func (d *deps) bind(ctx context.Context, namespace, role string, subjects ...rbacv1.Subject) error {
	binding := binding(namespace, role)
	return d.put(ctx, binding, func() {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		binding.Subjects = subjects
	})
}

// unbind takes the rights of the ClusterRoles in the namespace from all who have them. The bindings are emptied and not
// deleted, since that is all that Hanse may do with bindings.
func (d *deps) unbind(ctx context.Context, namespace string, roles ...string) error {
	var problems []error
	for _, role := range roles {
		binding := binding(namespace, role)
		found, err := d.find(ctx, binding)
		if found && len(binding.Subjects) > 0 {
			err = d.bind(ctx, namespace, role)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// put makes the object as mutate says, and writes only what is not so yet.
func (d *deps) put(ctx context.Context, object client.Object, mutate func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, d.direct, object, func() error {
		object.SetLabels(labels.Merge(object.GetLabels(), labels.Set{v1alpha1.LabelManaged: "true"}))
		mutate()
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// find reads the object as the API server has it now, and reports whether it is there.
func (d *deps) find(ctx context.Context, object client.Object) (bool, error) {
	there, err := existing(ctx, d.direct, object)
	return there != nil, err
}

// existing returns the object as it is now, or nil if it is not there.
func existing[T client.Object](ctx context.Context, from client.Reader, object T, options ...client.GetOption) (T, error) {
	return local.Find(ctx, from, client.ObjectKeyFromObject(object), object, options...)
}

// countTwins returns how many twin namespaces the peer has in this cluster.
func (d *deps) countTwins(ctx context.Context, peer string) (int, error) {
	twins := &corev1.NamespaceList{}
	err := d.client.List(ctx, twins, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer})
	if err != nil {
		return 0, fmt.Errorf("list twin namespaces: %w", err)
	}
	return len(twins.Items), nil
}

// remove deletes those of the objects that exist.
func (d *deps) remove(ctx context.Context, objects ...client.Object) error {
	var problems []error
	for _, object := range objects {
		err := d.direct.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && object.GetDeletionTimestamp().IsZero() {
			err = d.direct.Delete(ctx, object)
		}
		if client.IgnoreNotFound(err) != nil {
			problems = append(problems, fmt.Errorf("delete %T %s: %w", object, object.GetName(), err))
		}
	}
	return errors.Join(problems...)
}

// removeExactly deletes this very object, unless it goes already, and not another that has taken its name meanwhile.
func (d *deps) removeExactly(ctx context.Context, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	err := d.client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// end deletes the objects that are not being deleted, of a bounded number, and reports whether there were any.
func end(ctx context.Context, c client.Client, list client.ObjectList, of ...client.ListOption) (bool, error) {
	if err := c.List(ctx, list, append(of, client.Limit(endedAtOnce))...); err != nil {
		return false, fmt.Errorf("list %T: %w", list, err)
	}
	err := meta.EachListItem(list, func(item runtime.Object) error {
		if metadata, is := item.(*metav1.PartialObjectMetadata); is { // which says in a list of which kind it is
			kind := list.GetObjectKind().GroupVersionKind()
			metadata.SetGroupVersionKind(kind.GroupVersion().WithKind(strings.TrimSuffix(kind.Kind, "List")))
		}
		object, is := item.(client.Object)
		if !is || !object.GetDeletionTimestamp().IsZero() {
			return nil
		}
		err := c.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		if apierrors.IsConflict(err) {
			return nil // it is another one by now, which the next look finds
		}
		return client.IgnoreNotFound(err)
	})
	return meta.LenList(list) > 0, err
}

// patch writes what change does to the object, unless somebody else has changed the object meanwhile: the error is Conflict
// then.
func (d *deps) patch(ctx context.Context, object client.Object, change func()) error {
	before := object.DeepCopyObject().(client.Object)
	change()
	if equality.Semantic.DeepEqual(before, object) {
		return nil
	}
	return d.client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
