package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

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

// changePeer changes a Peer that there is.
func changePeer(ctx context.Context, c client.Client, name string, change func(*v1alpha1.Peer) error) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		peer, err := readPeer(ctx, c, name)
		if err != nil {
			return err
		}
		before := peer.DeepCopy()
		if err := change(peer); err != nil {
			return err
		}
		return c.Patch(ctx, peer, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return fmt.Errorf("change Peer %s: %w", name, err)
	}
	return nil
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

// because is the reason and the message of a condition, after a colon.
func because(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return ": " + c.Reason + ": " + printable(c.Message)
}

// tenantSecret reads a Secret of the peer's tenant namespace, nil if there is none.
func tenantSecret(ctx context.Context, c client.Client, peer, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: name}
	if err := c.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // none is an answer
		}
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	return secret, nil
}

// twinsOf returns the names of the namespaces that the peer has here.
func twinsOf(ctx context.Context, c client.Client, peer string) ([]string, error) {
	twins := &corev1.NamespaceList{}
	err := c.List(ctx, twins, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: peer})
	if err != nil {
		return nil, fmt.Errorf("list namespaces of %s: %w", peer, err)
	}
	var found []string
	for i := range twins.Items {
		found = append(found, twins.Items[i].Name)
	}
	slices.Sort(found)
	return found, nil
}

// guestsOf returns the names of the pods that the peer has here, each with its namespace.
func guestsOf(ctx context.Context, c client.Client, peer string) ([]string, error) {
	twins, err := twinsOf(ctx, c, peer)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, twin := range twins {
		guests := &v1alpha1.ShadowPodList{}
		if err := c.List(ctx, guests, client.InNamespace(twin)); err != nil {
			return nil, fmt.Errorf("list pods of %s: %w", peer, err)
		}
		for i := range guests.Items {
			found = append(found, client.ObjectKeyFromObject(&guests.Items[i]).String())
		}
	}
	slices.Sort(found)
	return found, nil
}
