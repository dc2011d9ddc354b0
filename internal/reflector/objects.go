// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// home returns the kind of the objects at home.
func (c *copier) home(name reflection.Kind) schema.GroupVersionKind {
	if listed := c.listed(name); listed != nil {
		return listed.GroupVersionKind()
	}
	return name.Home()
}

// ofIngresses returns the copies of Ingresses that the peer gets. Without a connection there are none, since there are no Services there.
func (c *copier) ofIngresses(ctx context.Context, req request) (demand, error) {
	all, err := c.ingresses(ctx, req)
	return demandOf(reflection.Ingresses(all, c.Reach.Of(reflection.Ingress))), err
}

// ingresses are those of the namespace, which are the cache's own, and none if the peer is not connected.
func (c *copier) ingresses(ctx context.Context, req request) ([]networkingv1.Ingress, error) {
	connection, err := c.connection(ctx, req.Peer)
	if err != nil || connection == nil {
		return nil, err
	}
	list := &networkingv1.IngressList{}
	err = c.Client.List(ctx, list, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// addOfIngresses adds the names of the Secrets that Ingresses of the namespace need at the peer.
func (c *copier) addOfIngresses(ctx context.Context, req request, names map[string]bool) error {
	all, err := c.ingresses(ctx, req)
	for _, name := range reflection.TLSSecrets(all, c.Reach.Of(reflection.Ingress)) {
		names[name] = true
	}
	return err
}

// ofListed returns of which objects of the kind the peer gets copies. Of a kind without a definition there are none.
func (c *copier) ofListed(ctx context.Context, req request, kind *reflection.ListedKind) (demand, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersionKind().GroupVersion().WithKind(kind.Kind + "List"))
	err := c.Client.List(ctx, list, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy)
	if meta.IsNoMatchError(err) {
		err = nil
	}
	return demandOf(kind.Sources(list.Items, c.Reach.Of(req.Kind))), err
}

// outboundListed reads the object and returns the copy that the twin should have, or nil if there must be none.
func (c *copier) outboundListed(ctx context.Context, m move, kind *reflection.ListedKind) (client.Object, error) {
	source := &unstructured.Unstructured{}
	source.SetGroupVersionKind(kind.GroupVersionKind())
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Source.Name}, source)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	out, err := kind.Outbound(source, m.twin, c.Reach.Of(m.Kind))
	if err != nil {
		return nil, c.refused(ctx, m, err)
	}
	return out, nil
}

// bringBack shows at home what the provider tells of its objects, and returns when to look again at what has to wait.
func (c *copier) bringBack(ctx context.Context, l look) (time.Duration, error) {
	req := l.talk.about
	if !req.Kind.ByProvider() {
		return 0, nil
	}
	if req.Kind == reflection.Ingress {
		return c.showAddresses(ctx, req, l.seen.Found)
	}
	return c.showStatus(ctx, l)
}

// unsay takes off Ingresses at which addresses they are reached at a peer that runs nothing of their namespace any more.
func (c *copier) unsay(ctx context.Context, req request, wanted demand) error {
	if req.Kind != reflection.Ingress || wanted.any() {
		return nil
	}
	_, err := c.showAddresses(ctx, req, nil)
	return err
}

// showAddresses has each Ingress of the place say at which addresses it is reached at the peer, given what is in the twin.
func (c *copier) showAddresses(ctx context.Context, req request, there map[string]metav1.Object) (time.Duration, error) {
	list := &networkingv1.IngressList{}
	if err := c.Client.List(ctx, list, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list Ingresses: %w", err)
	}
	var wait time.Duration
	var failed []error
	for i := range list.Items {
		ingress := &list.Items[i]
		shadow, _ := there[reflection.ShadowName(reflection.Ingress, ingress.Name)].(*v1alpha1.ShadowObject)
		addresses := reflection.AddressesAt(shadow, ingress.UID)
		if addresses == ingress.Annotations[reflection.AddressAnnotation(req.Peer)] {
			continue
		}
		if later := c.Links.Pace(req.Peer, ingress.UID); later > 0 {
			wait = max(wait, later)
			continue
		}
		failed = append(failed, c.annotate(ctx, ingress, req.Peer, addresses))
	}
	return wait, errors.Join(failed...)
}

// annotate writes at which addresses the Ingress is reached at the peer. Each peer is an owner of its own, so that none takes off what
// another has told.
func (c *copier) annotate(ctx context.Context, ingress *networkingv1.Ingress, peer, addresses string) error {
	wanted := networkingv1ac.Ingress(ingress.Name, ingress.Namespace).WithUID(ingress.UID)
	if addresses != "" {
		wanted = wanted.WithAnnotations(map[string]string{reflection.AddressAnnotation(peer): addresses})
	}
	err := c.Client.Apply(ctx, wanted, client.FieldOwner("hanse-address-at-"+peer), client.ForceOwnership)
	if local.IgnoreStale(err) != nil {
		return fmt.Errorf("annotate Ingress %s: %w", ingress.Name, err)
	}
	return nil
}

// showStatus writes the status of copies onto the objects of a listed kind, where administrators want that. What was written is not
// written again until it changes. Of several peers the first one by name counts.
func (c *copier) showStatus(ctx context.Context, l look) (time.Duration, error) {
	req := l.talk.about
	kind := c.listed(req.Kind)
	if kind == nil || !kind.Status {
		return 0, nil
	}
	if first, err := c.isFirst(ctx, req); !first || err != nil {
		return 0, err
	}
	var wait time.Duration
	var failed []error
	for name, source := range l.seen.Sources {
		shadow, ok := l.seen.Found[name].(*v1alpha1.ShadowObject)
		if !ok || source == nil {
			continue
		}
		status := reflection.StatusAt(shadow, source.UID)
		written := message{
			regarding: corev1.ObjectReference{UID: source.UID}, kind: "status", note: reflection.Fingerprint(status),
		}
		switch {
		case status == nil:
			continue
		case l.talk.knows(written):
			l.talk.now[written] = true
			continue
		}
		if later := c.Links.Pace(req.Peer, source.UID); later > 0 {
			wait = max(wait, later)
			continue
		}
		if err := c.writeStatus(ctx, l, kind, source, status); err != nil {
			failed = append(failed, err)
			continue
		}
		l.talk.now[written] = true
	}
	return wait, errors.Join(failed...)
}

// isFirst says whether the peer is the first one by name that has pods of the namespace.
func (c *copier) isFirst(ctx context.Context, req request) (bool, error) {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list pods: %w", err)
	}
	return !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		peer, away := peerOf(&pod)
		if !away || peer >= req.Peer || ended(&pod) {
			return false
		}
		_, open := c.Links.Get(peer)
		return open
	}), nil
}

func (c *copier) writeStatus(
	ctx context.Context, l look, kind *reflection.ListedKind, source *reflection.Source, status map[string]any,
) error {
	object := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	object.SetGroupVersionKind(kind.GroupVersionKind())
	object.SetNamespace(l.talk.about.Namespace)
	object.SetName(source.Name)
	object.SetUID(source.UID)
	err := c.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("hanse-reflector"), client.ForceOwnership)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // it is gone, or its kind has no such status
	case apierrors.IsInvalid(err): // by its definition here, which the provider's may not know
		c.tell(ctx, move{request: l.talk.about, talk: l.talk, Step: reflection.Step{Source: source}}, message{
			kind: corev1.EventTypeWarning, reason: v1alpha1.ReasonReflectionRefused, ofPeer: true,
			note: fmt.Sprintf("The status that peer %q tells cannot be written here: %v", l.talk.about.Peer, err),
		})
		return nil
	case err != nil:
		return fmt.Errorf("write the status of %s %s: %w", kind.Name(), source.Name, err)
	}
	return nil
}

// ingressHandler asks to look at Ingresses, and at the Secrets that they name, at each peer that has a twin of their namespace, and
// where an Ingress says that it is reached.
func (c *copier) ingressHandler() handler.TypedEventHandler[client.Object, request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, ingress client.Object) []request {
		requests := c.requestsIn(ctx, ingress.GetNamespace(), reflection.Ingress, reflection.Secret)
		for _, peer := range reflection.AddressedAt(ingress) {
			requests = append(requests, request{Peer: peer, place: place{Namespace: ingress.GetNamespace(), Kind: reflection.Ingress}})
		}
		return requests
	})
}

// addressedAt are requests for the Ingresses that say that they are reached at the peer.
func (c *copier) addressedAt(ctx context.Context, peer string) []request {
	list := &networkingv1.IngressList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read Ingresses from the cache")
	}
	var requests []request
	for i := range list.Items {
		if slices.Contains(reflection.AddressedAt(&list.Items[i]), peer) {
			requests = append(requests, request{Peer: peer, place: place{Namespace: list.Items[i].Namespace, Kind: reflection.Ingress}})
		}
	}
	return requests
}
