// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var shadowPods = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "shadowpods"}

// shadowClient is a client of the peer for which ShadowPods are the ReplicaSets and Jobs that they stand for.
type shadowClient struct {
	client.Client
	view *podView
}

// replaced is the error for a request that means an earlier ShadowPod of the name.
func replaced(shadow *v1alpha1.ShadowPod) error {
	return apierrors.NewConflict(shadowPods, shadow.Name, errors.New("it is another one by now"))
}

// Get implements client.Client. It reads from the peer itself, because callers that trust a mirror read the mirror.
func (c *shadowClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	shadow, is := object.(*v1alpha1.ShadowPod)
	if !is {
		return c.Client.Get(ctx, key, object, opts...)
	}
	seen, err := c.read(ctx, key)
	if err != nil {
		return err
	}
	shadowOf(key, seen).DeepCopyInto(shadow)
	return nil
}

// read returns what there is for the home pod, or an error that is NotFound.
func (c *shadowClient) read(ctx context.Context, home types.NamespacedName) (observed, error) {
	for _, namespace := range c.view.namespaces {
		for _, owner := range []client.Object{&appsv1.ReplicaSet{}, &batchv1.Job{}} {
			key := client.ObjectKey{Namespace: namespace, Name: remoteName(c.view.id, home)}
			err := c.Client.Get(ctx, key, owner)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return observed{}, fmt.Errorf("read %T %s: %w", owner, key, err)
			}
			if found, ours := homeOf(c.view.id, owner); !ours || found != home {
				continue // somebody has made, or changed, it by hand
			}
			return c.withPods(ctx, owner)
		}
	}
	return observed{}, apierrors.NewNotFound(shadowPods, home.Name)
}

func (c *shadowClient) withPods(ctx context.Context, owner client.Object) (observed, error) {
	list := &corev1.PodList{}
	err := c.List(ctx, list, client.InNamespace(owner.GetNamespace()),
		client.MatchingLabels(ownLabels(c.view.id, types.UID(owner.GetLabels()[v1alpha1.LabelHomeUID]))))
	if err != nil {
		return observed{}, fmt.Errorf("list pods: %w", err)
	}
	found := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return observe(owner, found), nil
}

// newest returns what there is as far as the view shows it, or else what the peer says.
func (c *shadowClient) newest(ctx context.Context, home types.NamespacedName) (observed, error) {
	if seen, found := c.view.look(home); found {
		return seen, nil
	}
	return c.read(ctx, home)
}

// Create implements client.Client: the pod begins to run.
func (c *shadowClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	shadow, is := object.(*v1alpha1.ShadowPod)
	if !is {
		return c.Client.Create(ctx, object, opts...)
	}
	home := client.ObjectKeyFromObject(shadow)
	if _, found := c.view.look(home); found {
		// It may be of the other kind, or in another namespace, where its name does not stand against this one.
		return apierrors.NewAlreadyExists(shadowPods, shadow.Name)
	}
	owner, err := build(c.view.id, c.view.namespaces[0], shadow)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := c.Client.Create(ctx, owner); err != nil {
		return err
	}
	shadowOf(home, observe(owner, nil)).DeepCopyInto(shadow)
	return nil
}

// Update implements client.Client: what may change of a running pod changes. A ShadowPod that names no pod has the one
// that it had.
func (c *shadowClient) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	shadow, is := object.(*v1alpha1.ShadowPod)
	if !is {
		return c.Client.Update(ctx, object, opts...)
	}
	seen, err := c.newest(ctx, client.ObjectKeyFromObject(shadow))
	if err != nil {
		return err
	}
	if shadow.UID != "" && shadow.UID != seen.owner.GetUID() {
		return replaced(shadow)
	}
	return c.view.writer.change(ctx, seen, shadow)
}

// Patch implements client.Client, for merge patches.
func (c *shadowClient) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	shadow, is := object.(*v1alpha1.ShadowPod)
	if !is {
		return c.Client.Patch(ctx, object, patch, opts...)
	}
	if patch.Type() != types.MergePatchType {
		return apierrors.NewBadRequest("a ShadowPod at a cluster without Hanse takes merge patches alone")
	}
	data, err := patch.Data(shadow)
	if err != nil {
		return fmt.Errorf("read patch: %w", err)
	}
	home := client.ObjectKeyFromObject(shadow)
	seen, err := c.newest(ctx, home)
	if err != nil {
		return err
	}
	changed := shadowOf(home, seen)
	uid := changed.UID
	if err := json.Unmarshal(data, changed); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if changed.UID != uid {
		return replaced(shadow)
	}
	return c.view.writer.change(ctx, seen, changed)
}

// Delete implements client.Client: the pod ends, with the grace that it was given before.
func (c *shadowClient) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	shadow, is := object.(*v1alpha1.ShadowPod)
	if !is {
		return c.Client.Delete(ctx, object, opts...)
	}
	seen, err := c.newest(ctx, client.ObjectKeyFromObject(shadow))
	if err != nil {
		return err
	}
	options := client.DeleteOptions{}
	options.ApplyOptions(opts)
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != seen.owner.GetUID() {
		return replaced(shadow)
	}
	return c.view.writer.end(ctx, seen)
}
