package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// read reads the object of that namespace and name, and reports whether there is one.
func read(ctx context.Context, c client.Client, namespace, name string, into client.Object) (bool, error) {
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		into.SetNamespace(namespace)
		into.SetName(name)
		return false, fmt.Errorf("read %s: %w", describe(into), err)
	}
	return true, nil
}

// write makes the object be as mutate says. Its name and namespace must be set.
func write(ctx context.Context, c client.Client, object client.Object, mutate func() error) error {
	if _, err := controllerutil.CreateOrUpdate(ctx, c, object, mutate); err != nil {
		return fmt.Errorf("write %s: %w", describe(object), err)
	}
	return nil
}

// An edit changes an object that there is, or prints what it would be.
type edit[T client.Object] struct {
	read   func(context.Context) (T, error)
	change func(T) error
	what   string // to be said if it fails, such as: change Peer hamburg
}

func (e edit[T]) print(ctx context.Context, command *cobra.Command) error {
	object, err := e.read(ctx)
	if err != nil {
		return err
	}
	if err := e.change(object); err != nil {
		return err
	}
	return printObjects(command.OutOrStdout(), object)
}

func (e edit[T]) write(ctx context.Context, c client.Client) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := e.read(ctx)
		if err != nil {
			return err
		}
		before, ok := object.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", object)
		}
		if err := e.change(object); err != nil {
			return err
		}
		return c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", e.what, err)
	}
	return nil
}

// describe names an object with its kind.
func describe(object client.Object) string {
	kind := fmt.Sprintf("%T", object)
	kind = kind[strings.LastIndex(kind, ".")+1:]
	if object.GetNamespace() == "" {
		return kind + " " + object.GetName()
	}
	return kind + " " + object.GetNamespace() + "/" + object.GetName()
}

// readPeer reads a Peer that the user has named.
func readPeer(ctx context.Context, c client.Client, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, peer)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Peer %s here: `kubectl hanse status` shows those that there are: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read Peer %s: %w", name, err)
	}
	return peer, nil
}

// editOfPeer changes a Peer that the user has named.
func editOfPeer(c client.Client, name string, change func(*v1alpha1.Peer) error) edit[*v1alpha1.Peer] {
	return edit[*v1alpha1.Peer]{
		read:   func(ctx context.Context) (*v1alpha1.Peer, error) { return readPeer(ctx, c, name) },
		change: change,
		what:   "change Peer " + name,
	}
}

func addRole(peer *v1alpha1.Peer, role v1alpha1.PeerRole) {
	if !peer.HasRole(role) {
		peer.Spec.Roles = append(peer.Spec.Roles, role)
	}
}

// currentCondition is the condition of the Peer as its spec is now, nil as long as nobody has looked at that.
func currentCondition(peer *v1alpha1.Peer, kind string) *metav1.Condition {
	found := meta.FindStatusCondition(peer.Status.Conditions, kind)
	if found == nil || found.ObservedGeneration < peer.Generation {
		return nil
	}
	return found
}

// tenantSecret reads a Secret of the peer's tenant namespace, nil if there is none.
func tenantSecret(ctx context.Context, c client.Client, peer, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	found, err := read(ctx, c, v1alpha1.TenantNamespace(peer), name, secret)
	if !found {
		return nil, err
	}
	return secret, nil
}

func offloadingOf(namespace string) *v1alpha1.NamespaceOffloading {
	return &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName},
	}
}
