package invitation

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// act takes the step.
func (c *Controller) act(ctx context.Context, next action, f *facts) error {
	namespace := f.draft.Namespace
	switch next {
	case setRights:
		ctrl.LoggerFrom(ctx).Info("Changing the rights of the peer", "access", f.peer.Access())
		return c.bind(ctx, namespace, v1alpha1.ClusterRolePeerTenant, f.rights()...)
	case dropInvitation:
		return c.remove(ctx, f.secret)
	case dropClaim:
		return c.dropClaim(ctx, f.claim)
	case prepare:
		return c.prepare(ctx, f)
	case mint:
		return c.mint(ctx, f)
	case answerClaim:
		return c.answer(ctx, f)
	case clearSession:
		return c.applyClaim(ctx, f.claim, v1alpha1.PeeringClaimStatus{
			Conditions: f.claim.Status.Conditions, ObservedGeneration: f.claim.Status.ObservedGeneration,
		})
	default:
		return nil
	}
}

// dropClaim deletes the claim. A consumer may not hold it by a finalizer.
func (c *Controller) dropClaim(ctx context.Context, claim *v1alpha1.PeeringClaim) error {
	if len(claim.Finalizers) > 0 {
		before := claim.DeepCopy()
		claim.Finalizers = nil
		err := c.client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the finalizers off the PeeringClaim: %w", err)
		}
	}
	return c.remove(ctx, claim)
}

func serviceAccount(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// account makes a ServiceAccount in the tenant namespace whose tokens no pod gets.
func (c *Controller) account(ctx context.Context, f *facts, name string) (*corev1.ServiceAccount, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.draft.Namespace, Name: name}}
	return account, c.put(ctx, account, func() {
		account.Labels[v1alpha1.LabelPeer] = f.peer.Name
		account.AutomountServiceAccountToken = ptr.To(false)
	})
}

// token returns a token of the ServiceAccount that ends with the Secret.
func (c *Controller) token(
	ctx context.Context, account *corev1.ServiceAccount, secret *corev1.Secret, seconds int64,
) (authenticationv1.TokenRequestStatus, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID,
		},
	}}
	if err := c.client.SubResource("token").Create(ctx, account, request); err != nil {
		return request.Status, fmt.Errorf("request a token of ServiceAccount %s: %w", account.Name, err)
	}
	return request.Status, nil
}

// bind gives the subjects the rights of the ClusterRole in the namespace, by a RoleBinding of the role's name.
func (c *Controller) bind(ctx context.Context, namespace, role string, subjects ...rbacv1.Subject) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}}
	return c.put(ctx, binding, func() {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if !equality.Semantic.DeepEqual(binding.Subjects, subjects) {
			binding.Subjects = subjects
		}
	})
}

// put makes the object as mutate says, and writes only what is not so yet.
func (c *Controller) put(ctx context.Context, object client.Object, mutate func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, c.direct, object, func() error {
		if object.GetLabels() == nil {
			object.SetLabels(map[string]string{})
		}
		object.GetLabels()[v1alpha1.LabelManaged] = "true"
		mutate()
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// remove deletes exactly this object, and not another that took its name meanwhile.
func (c *Controller) remove(ctx context.Context, object client.Object) error {
	err := c.client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
