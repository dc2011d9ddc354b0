// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// A copyView is of our copies of ConfigMaps and Secrets. It shows their metadata as if each had the name of its object at home, and
// lay in a twin.
//
// Copies lie in the first namespace, where new pods run. Where an administrator has changed the order, pods may still run in the
// others: a copy that is in one of these is kept up to date until no pod needs it.
type copyView struct{ *view }

func newCopyView(link *peers.Link, id string, namespaces []string) *copyView {
	v := &copyView{newView(link, id, namespaces)}
	v.contents = v
	return v
}

func (v *copyView) transport() *peers.Transport {
	return v.shownBy(&copyClient{Client: v.link.Client(), view: v})
}

func (*copyView) kinds() map[kind]client.Object { return copyKinds }

func (v *copyView) homeOf(_ kind, object client.Object) (types.NamespacedName, bool) {
	home, ours := originOf(v.id, object, v1alpha1.AnnotationHomeName)
	return home, ours && object.GetName() == remoteName(v.id, home)
}

func (*copyView) shows(example client.Object) bool {
	_, is := copyKind(example)
	return is
}

func (*copyView) touched(types.NamespacedName) {}

// copyKind returns the kind of copies to which the object belongs.
func copyKind(object client.Object) (kind, bool) {
	for of, example := range copyKinds {
		if example.GetObjectKind().GroupVersionKind() == object.GetObjectKind().GroupVersionKind() {
			return of, true
		}
	}
	return 0, false
}

// shown makes one copy of those in all namespaces. It is of no version if one of them is of another than the others, or the first
// namespace has none: then they are all written anew.
func (v *copyView) shown(example client.Object, home types.NamespacedName) client.Object {
	of, _ := copyKind(example)
	var shown client.Object
	var versions []string
	whole := true
	for i, namespace := range v.namespaces {
		part := v.store.homes[home].in(place{of, types.NamespacedName{Namespace: namespace, Name: remoteName(v.id, home)}})
		switch {
		case part == nil:
			whole = whole && i > 0
			continue
		case shown == nil:
			shown = part.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
		default:
			whole = whole && originVersion(part) == originVersion(shown)
		}
		versions = append(versions, part.GetResourceVersion())
	}
	if shown == nil {
		return nil
	}
	shown.SetNamespace(home.Namespace)
	shown.SetName(home.Name)
	shown.SetResourceVersion(strings.Join(versions, ","))
	if !whole {
		delete(shown.GetAnnotations(), v1alpha1.AnnotationOriginVersion)
	}
	return shown
}

func originVersion(copied client.Object) string {
	return copied.GetAnnotations()[v1alpha1.AnnotationOriginVersion]
}

// copyClient is a client of the peer for which copies of ConfigMaps and Secrets have the names that they have at home.
type copyClient struct {
	client.Client
	view *copyView
}

// named returns of which kind the object is, if it is a ConfigMap or Secret, whose name is that at home. What is read and deleted as
// metadata has its name at the peer.
func named(object client.Object) (schema.GroupVersionKind, bool) {
	switch object.(type) {
	case *corev1.ConfigMap:
		return corev1.SchemeGroupVersion.WithKind("ConfigMap"), true
	case *corev1.Secret:
		return corev1.SchemeGroupVersion.WithKind("Secret"), true
	default:
		return schema.GroupVersionKind{}, false
	}
}

// Create implements client.Client.
func (c *copyClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if of, is := named(object); is {
		return c.write(ctx, of, object)
	}
	return c.Client.Create(ctx, object, opts...)
}

// Update implements client.Client.
func (c *copyClient) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	if of, is := named(object); is {
		return c.write(ctx, of, object)
	}
	return c.Client.Update(ctx, object, opts...)
}

// Delete implements client.Client.
func (c *copyClient) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	of, is := named(object)
	if !is {
		return c.Client.Delete(ctx, object, opts...)
	}
	for _, namespace := range c.view.namespaces {
		found, ours, err := c.find(ctx, of, namespace, object)
		if err != nil {
			return err
		}
		if !ours {
			continue
		}
		uid, version := found.GetUID(), found.GetResourceVersion()
		err = c.Client.Delete(ctx, found, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// write makes the copy in the first namespace, and brings it up to date wherever there is one. What the peer has now decides, and
// not what the caller has seen.
func (c *copyClient) write(ctx context.Context, of schema.GroupVersionKind, object client.Object) error {
	for i, namespace := range c.view.namespaces {
		found, ours, err := c.find(ctx, of, namespace, object)
		if err != nil {
			return err
		}
		copied := c.copyIn(namespace, object)
		switch {
		case ours:
			copied.SetResourceVersion(found.GetResourceVersion())
			err = c.Client.Update(ctx, copied)
		case i > 0:
		case found.GetUID() != "":
			err = apierrors.NewForbidden(schema.GroupResource{Resource: strings.ToLower(of.Kind) + "s"}, copied.GetName(),
				errors.New("there is one in namespace "+namespace+" that is not of this cluster: have it removed"))
		default:
			err = c.Client.Create(ctx, copied)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyIn returns the copy as it is to be in that namespace of the peer.
func (c *copyClient) copyIn(namespace string, object client.Object) client.Object {
	copied := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
	copied.SetNamespace(namespace)
	copied.SetName(remoteName(c.view.id, client.ObjectKeyFromObject(object)))
	copied.SetResourceVersion("")
	labels, annotations := copied.GetLabels(), copied.GetAnnotations() // each copy has some
	labels[v1alpha1.LabelAgentless] = c.view.id
	annotations[v1alpha1.AnnotationHomeNamespace] = object.GetNamespace()
	annotations[v1alpha1.AnnotationHomeName] = object.GetName()
	return copied
}

// find reads the metadata of what has the name of the copy in that namespace of the peer, which is empty if there is nothing, and
// says whether it is ours.
func (c *copyClient) find(
	ctx context.Context, of schema.GroupVersionKind, namespace string, object client.Object,
) (found *metav1.PartialObjectMetadata, ours bool, err error) {
	home := client.ObjectKeyFromObject(object)
	key := types.NamespacedName{Namespace: namespace, Name: remoteName(c.view.id, home)}
	found = &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(of)
	if err := client.IgnoreNotFound(c.Get(ctx, key, found)); err != nil {
		return nil, false, fmt.Errorf("read %s %s: %w", of.Kind, key, err)
	}
	known, ours := c.view.homeOf(0, found)
	return found, ours && known == home, nil
}
