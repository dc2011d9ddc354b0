// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// objectReconciler keeps an object for each ShadowObject of a peer: an Ingress, or one of a kind that the Peer and this cluster allow.
// Kubernetes deletes it with the ShadowObject, its owner.
type objectReconciler struct {
	client      client.Client
	live        client.Reader
	mapper      meta.RESTMapper
	allowed     []reflection.ListedKind
	definitions *definitions
	clock       clock.PassiveClock
	reports     *eventBudgets
}

// objectFacts are what there is of one ShadowObject.
type objectFacts struct {
	shadow *v1alpha1.ShadowObject
	peer   *v1alpha1.Peer
	found  *unstructured.Unstructured // the object of that name, nil if there is none
}

// Reconcile brings one object in line with what the peer asks for.
func (r *objectReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	seen, err := r.observe(ctx, request)
	if err != nil || seen == nil {
		return reconcile.Result{}, err
	}
	actErr := r.act(ctx, seen)
	denial, denied := denialOf(actErr)
	if actErr != nil && !denied {
		return reconcile.Result{}, actErr
	}
	wait, err := r.report(ctx, seen, denial)
	if denied && wait == 0 {
		wait = retryOf(denial)
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// retryOf says when to look again at what is denied, where no event tells that it can be made: a quota may have room later.
func retryOf(denial *reflection.Denial) time.Duration {
	switch denial.Reason {
	case v1alpha1.ReasonDefinitionMissing:
		return local.DefinitionDelay
	case v1alpha1.ReasonObjectRefused, v1alpha1.ReasonNameTaken:
		return retryAtMost
	default:
		return 0
	}
}

// observe returns nil where there is nothing to keep.
func (r *objectReconciler) observe(ctx context.Context, request reconcile.Request) (*objectFacts, error) {
	shadow, err := local.Find(ctx, r.client, request.NamespacedName, &v1alpha1.ShadowObject{})
	if err != nil || shadow == nil || !shadow.DeletionTimestamp.IsZero() {
		return nil, err
	}
	twin, err := local.Find(ctx, r.client, client.ObjectKey{Name: shadow.Namespace}, &corev1.Namespace{}, client.UnsafeDisableDeepCopy)
	if err != nil || twin == nil || !twin.DeletionTimestamp.IsZero() || v1alpha1.TwinPeer(twin) == "" {
		return nil, err
	}
	peer, err := local.Find(ctx, r.client, client.ObjectKey{Name: v1alpha1.TwinPeer(twin)}, &v1alpha1.Peer{})
	if err != nil || peer == nil {
		return nil, err
	}
	return &objectFacts{shadow: shadow, peer: peer}, nil
}

// act makes the object what it is to be, or removes it where the peer may not have it any more. An error may be a Denial, see denialOf.
func (r *objectReconciler) act(ctx context.Context, seen *objectFacts) error {
	want, denied := reflection.Make(seen.shadow, reflection.Terms{Peer: &seen.peer.Spec, Allowed: r.groupKinds()})
	err := r.find(ctx, seen)
	switch {
	case meta.IsNoMatchError(err) && denied == nil:
		return noDefinition(seen.shadow, r.define(ctx, seen.shadow))
	case err != nil:
		return errors.Join(denied, err)
	}
	if denied == nil {
		denied = r.checkHosts(ctx, seen, want)
	}
	switch {
	case seen.found != nil && !metav1.IsControlledBy(seen.found, seen.shadow):
		seen.found = nil
		return &reflection.Denial{Reason: v1alpha1.ReasonNameTaken, Message: fmt.Sprintf(
			"the provider has a %s %q of its own in this namespace, which is left alone: choose another name", seen.shadow.Spec.Kind, seen.shadow.Spec.Name)}
	case denied != nil:
		return errors.Join(denied, r.remove(ctx, seen))
	case seen.found == nil:
		return r.make(ctx, seen, want)
	default:
		return r.change(ctx, seen, want)
	}
}

func (r *objectReconciler) groupKinds() []schema.GroupKind {
	var all []schema.GroupKind
	for _, kind := range r.allowed {
		all = append(all, kind.GroupKind())
	}
	return all
}

// find reads the object of the name. Of kinds to which we have no rights, and of those that are not defined here, there is none.
func (r *objectReconciler) find(ctx context.Context, seen *objectFacts) error {
	kind := schema.GroupVersionKind{Group: seen.shadow.Spec.Group, Version: seen.shadow.Spec.Version, Kind: seen.shadow.Spec.Kind}
	if !r.mayWrite(kind.GroupKind()) {
		return nil
	}
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case err != nil:
		return fmt.Errorf("look for the definition of %s: %w", kind, err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return &reflection.Denial{Reason: v1alpha1.ReasonKindNotAllowed, Message: "objects of this kind lie in no namespace, so that no peer can have any"}
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(kind)
	seen.found, err = local.Find(ctx, r.live, client.ObjectKey{Namespace: seen.shadow.Namespace, Name: seen.shadow.Spec.Name}, found)
	return err
}

func (r *objectReconciler) mayWrite(kind schema.GroupKind) bool {
	if kind == (schema.GroupKind{Group: networkingv1.GroupName, Kind: string(reflection.Ingress)}) {
		return true
	}
	for _, allowed := range r.allowed {
		if allowed.GroupKind() == kind {
			return true
		}
	}
	return false
}

// define has the definition of the kind installed that an administrator keeps, and says what comes of that.
func (r *objectReconciler) define(ctx context.Context, shadow *v1alpha1.ShadowObject) string {
	for _, kind := range r.allowed {
		if kind.Definition != "" && kind.Group == shadow.Spec.Group && kind.Kind == shadow.Spec.Kind {
			return r.definitions.install(ctx, kind)
		}
	}
	return canInstall
}

const canInstall = "its administrator can install it"

func noDefinition(shadow *v1alpha1.ShadowObject, but string) error {
	return &reflection.Denial{Reason: v1alpha1.ReasonDefinitionMissing, Message: fmt.Sprintf(
		"the provider has no definition of kind %s in version %s of %s: %s", shadow.Spec.Kind, shadow.Spec.Version, shadow.Spec.Group, but)}
}

// checkHosts denies an Ingress hosts that another namespace has.
func (r *objectReconciler) checkHosts(ctx context.Context, seen *objectFacts, want *unstructured.Unstructured) error {
	if seen.shadow.Spec.Kind != string(reflection.Ingress) || seen.shadow.Spec.Group != networkingv1.GroupName {
		return nil
	}
	list := &networkingv1.IngressList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Ingresses: %w", err)
	}
	wanted, err := ingressFrom(want)
	if err != nil {
		return err
	}
	var found *networkingv1.Ingress
	if seen.found != nil {
		if found, err = ingressFrom(seen.found); err != nil {
			return err
		}
	}
	return reflection.CheckHosts(reflection.HostsOf(&wanted.Spec), seen.shadow.Namespace, found, list.Items)
}

func (r *objectReconciler) make(ctx context.Context, seen *objectFacts, want *unstructured.Unstructured) error {
	if seen.peer.Access() != v1alpha1.AccessOpen {
		return &reflection.Denial{Reason: v1alpha1.ReasonPeerCordoned, Message: "the provider takes nothing more at present"}
	}
	err := r.client.Create(ctx, want)
	if apierrors.IsNotFound(err) { // the definition is gone, and the mapper remembers it
		return noDefinition(seen.shadow, r.define(ctx, seen.shadow))
	}
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Made object of a peer", "kind", seen.shadow.Spec.Kind, "name", seen.shadow.Spec.Name)
	seen.found = want
	return nil
}

// change makes the object what is wanted, unless it is that. What its controllers have added to its metadata stays, and its status.
func (r *objectReconciler) change(ctx context.Context, seen *objectFacts, want *unstructured.Unstructured) error {
	if isAsWanted(seen.found, want) {
		return nil
	}
	next := want.DeepCopy()
	next.Object["metadata"] = seen.found.DeepCopy().Object["metadata"]
	next.SetLabels(want.GetLabels())
	notes := next.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	for key, value := range want.GetAnnotations() {
		notes[key] = value
	}
	next.SetAnnotations(notes)
	if status, ok := seen.found.Object["status"]; ok {
		next.Object["status"] = status
	}
	if err := r.client.Update(ctx, next); err != nil {
		return err
	}
	seen.found = next
	return nil
}

// remove deletes the object that the peer may not have any more.
func (r *objectReconciler) remove(ctx context.Context, seen *objectFacts) error {
	if seen.found == nil {
		return nil
	}
	uid := seen.found.GetUID()
	err := r.client.Delete(ctx, seen.found, client.Preconditions{UID: &uid})
	seen.found = nil
	return local.IgnoreStale(err)
}

// denialOf returns why there is no object as asked for, if that is for the consumer to know: our own reason, or the API server's.
func denialOf(err error) (*reflection.Denial, bool) {
	if denial, ok := errors.AsType[*reflection.Denial](err); ok {
		return denial, true
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return &reflection.Denial{
			Reason: v1alpha1.ReasonObjectRefused, Message: sanitize.Text(err.Error(), maxClaimMessage),
		}, true
	}
	return nil, false
}
