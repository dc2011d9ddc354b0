// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// maxNote is how long the note of an event may be.
const maxNote = 1024

// A move is a step that is being taken.
type move struct {
	request
	reflection.Step
	talk   *talk
	needed bool              // by a pod, or as all of its kind are
	known  reflection.Object // the copy, if it is known without reading
	ahead  *ahead            // what was read already of what is to be copied
	twin   string            // the namespace at the peer
	ends   bool              // it is being deleted
	peer   client.Client     // the way to it
}

// take does one step. Where the world has moved on meanwhile it does nothing: what moved it asks for another look.
func (c *copier) take(ctx context.Context, m move) error {
	switch m.Verb {
	case reflection.Yield:
		instead := "pods there use it instead of this one"
		switch {
		case m.Kind.ByProvider():
			instead = "this one has no copy there"
		case !m.Kind.ByPods():
			instead = "pods there reach this one at home"
		}
		c.tell(ctx, m, message{kind: corev1.EventTypeWarning, reason: v1alpha1.ReasonReflectionConflict, note: fmt.Sprintf(
			"Peer %q has a %s of this name of its own. It is left alone, and %s", m.Peer, m.Kind.Twin().Kind, instead)})
		return nil
	case reflection.Withhold:
		c.refuse(ctx, m, string(m.Source.Stays))
		return nil
	case reflection.Delete:
		return c.delete(ctx, m)
	case reflection.Replace:
		if err := c.delete(ctx, m); err != nil {
			return err
		}
	case reflection.Create, reflection.Update:
	}
	return c.write(ctx, m)
}

// write creates the copy, or updates the one that was found.
func (c *copier) write(ctx context.Context, m move) error {
	out, err := c.outbound(ctx, m)
	update := m.Verb == reflection.Update
	switch {
	case err != nil:
		return err
	case out == nil && update: // what must not go any more must not stay either
		return c.delete(ctx, m)
	case out == nil, m.ends: // what is in the twin goes with it, and the mapping tells when there is another
		return nil
	case !update:
		return c.wrote(ctx, m, reflection.Create, m.peer.Create(ctx, out))
	case versionOf(out) == versionOf(m.Found): // our own watch is behind
		return nil
	}
	out.SetResourceVersion(m.Found.GetResourceVersion())
	return c.wrote(ctx, m, reflection.Update, client.IgnoreNotFound(m.peer.Update(ctx, out)))
}

func versionOf(copied metav1.Object) string {
	return copied.GetAnnotations()[v1alpha1.AnnotationOriginVersion]
}

// delete removes the copy that was seen, and no other object.
func (c *copier) delete(ctx context.Context, m move) error {
	uid, version := m.Found.GetUID(), m.Found.GetResourceVersion()
	doomed := m.empty()
	doomed.SetNamespace(m.twin)
	err := m.peer.Delete(ctx, doomed, client.Preconditions{UID: &uid, ResourceVersion: &version})
	return c.wrote(ctx, m, reflection.Delete, client.IgnoreNotFound(err))
}

// wrote says what became of a write. It tells the user when it was the peer that did not take the copy, which may pass: a
// quota is one reason.
func (c *copier) wrote(ctx context.Context, m move, verb reflection.Verb, err error) error {
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return nil // the mirror is behind
	case local.IsEnding(err): // which the mapping tells too
	case verb != reflection.Delete && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)):
		c.refuse(ctx, m, "the peer does not take it: "+err.Error())
	case err == nil:
		copiesWritten.WithLabelValues(string(m.Kind), string(verb)).Inc()
		ctrl.LoggerFrom(ctx).Info("Changed the copy at the peer", "verb", verb, "name", m.Name)
	}
	return err
}

// outbound reads the object and returns the copy that the twin should have, or nil if there must be none.
func (c *copier) outbound(ctx context.Context, m move) (client.Object, error) {
	if m.known != nil {
		out, _ := m.known.DeepCopyObject().(client.Object) // what the client writes to it must not get into the cache
		out.SetNamespace(m.twin)
		return out, nil
	}
	if listed := c.listed(m.Kind); listed != nil {
		return c.outboundListed(ctx, m, listed)
	}
	source, err := c.read(ctx, m)
	if err != nil || source == nil {
		return nil, err
	}
	if isToken(source) && !m.needed { // what never ends leaves for a pod alone
		return nil, nil
	}
	out, err := reflection.Outbound(source, m.twin, c.Reach.Of(m.Kind))
	if err != nil {
		return nil, c.refused(ctx, m, err)
	}
	return out, nil
}

// read returns the object at home, or nil if there is none.
func (c *copier) read(ctx context.Context, m move) (client.Object, error) {
	if source := m.ahead.find(ctx, m.Name); source != nil {
		return source, nil
	}
	source := m.empty()
	source.SetNamespace(m.Namespace)
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(source), source)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	return source, nil
}

// refused tells the user why there is no copy, if the error is a Refusal. Any other it returns.
func (c *copier) refused(ctx context.Context, m move, err error) error {
	if refusal, refused := errors.AsType[reflection.Refusal](err); refused {
		c.refuse(ctx, m, "it does not go there: "+refusal.Error())
		return nil
	}
	return err
}

// empty returns an object of the name in a twin.
func (m *move) empty() client.Object {
	meta := metav1.ObjectMeta{Name: m.Name}
	switch m.Kind {
	case reflection.Secret:
		return &corev1.Secret{ObjectMeta: meta}
	case reflection.Service:
		return &corev1.Service{ObjectMeta: meta}
	case reflection.EndpointSlice:
		return &v1alpha1.ShadowEndpointSlice{ObjectMeta: meta}
	case reflection.ConfigMap:
		return &corev1.ConfigMap{ObjectMeta: meta}
	case reflection.Ingress:
	}
	return &v1alpha1.ShadowObject{ObjectMeta: meta}
}

// refuse tells the user why there is no copy. It is no warning that a Service stays at home as its author wants: pods reach it there.
func (c *copier) refuse(ctx context.Context, m move, why string) {
	if !m.needed {
		return // it would go because administrators want all to go, or its author, which its type forbids
	}
	said := message{kind: corev1.EventTypeWarning, reason: v1alpha1.ReasonReflectionRefused}
	switch {
	case m.Kind.ByPods():
		said.note = fmt.Sprintf("Pods at peer %q refer to it, but %s", m.Peer, why)
	case m.Kind == reflection.EndpointSlice && m.known == nil:
		said.note = fmt.Sprintf("The Service at peer %q goes without these endpoints: %s", m.Peer, why)
	case m.Kind.ByProvider():
		said.note = fmt.Sprintf("It has no copy at peer %q: %s", m.Peer, why)
	default:
		said.note = fmt.Sprintf("Pods at peer %q reach it at home alone: %s", m.Peer, why)
	}
	if !m.Kind.ByPods() && m.Source.Stays != "" {
		said.kind = corev1.EventTypeNormal
	}
	c.tell(ctx, m, said)
}

// tell makes an event on the object at home: of endpoints, on their Service.
func (c *copier) tell(ctx context.Context, m move, said message) {
	home := c.home(m.Kind)
	regarding := corev1.ObjectReference{
		APIVersion: home.GroupVersion().String(), Kind: home.Kind, Namespace: m.Namespace, Name: cmp.Or(m.Source.Name, m.Name), UID: m.Source.UID,
	}
	if slice, ok := m.known.(*v1alpha1.ShadowEndpointSlice); ok {
		service := &corev1.Service{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: slice.Spec.Service}, service); err != nil {
			ctrl.LoggerFrom(ctx).Info("Cannot tell a Service of its endpoints", "Service", slice.Spec.Service, "cause", err.Error())
			return
		}
		regarding.APIVersion, regarding.Kind = "v1", string(reflection.Service)
		regarding.Name, regarding.UID = service.Name, service.UID
	}
	said.regarding, said.note = regarding, sanitize.Text(said.note, maxNote)
	if !said.ofPeer || m.talk.knows(said) || c.Links.MayTell(m.Peer) {
		m.talk.say(said)
	}
}

// isAnswer says whether the error is what an API server has answered.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code > 0 && status.Status().Code < 500
}

// tellMissing makes an event on each pod that refers to an object that is not there at home: at the peer the pod's own
// kubelet says so to nobody but the provider. The reasons are those that users of virtual nodes know. A pod that runs does
// without what is optional.
func (c *copier) tellMissing(ctx context.Context, talk *talk, seen reflection.Sight) error {
	req := talk.about
	lacks := func(name string) bool { return seen.Sources[name] == nil }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(seen.Wanted)), lacks) {
		return nil
	}
	pods, err := c.podsOf(ctx, req)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		regarding := corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		}
		for _, reference := range needs(pod) {
			if reference.Kind != req.Kind || !lacks(reference.Name) || reference.Optional && pod.Status.Phase == corev1.PodRunning {
				continue
			}
			kind, reason := corev1.EventTypeWarning, mandatoryNotFound[reference.Kind]
			if reference.Optional {
				kind, reason = corev1.EventTypeNormal, optionalNotFound[reference.Kind]
			}
			note := fmt.Sprintf("There is no %s %q in namespace %s", reference.Kind, reference.Name, pod.Namespace)
			talk.say(message{regarding: regarding, kind: kind, reason: reason, note: note})
		}
	}
	return nil
}

// The reasons of events about objects that are not there.
var (
	mandatoryNotFound = map[reflection.Kind]string{
		reflection.ConfigMap: v1alpha1.ReasonMandatoryConfigMapNotFound, reflection.Secret: v1alpha1.ReasonMandatorySecretNotFound,
	}
	optionalNotFound = map[reflection.Kind]string{
		reflection.ConfigMap: v1alpha1.ReasonOptionalConfigMapNotFound, reflection.Secret: v1alpha1.ReasonOptionalSecretNotFound,
	}
)

var copiesWritten = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hanse_reflection_writes_total",
	Help: "Copies of what pods refer to that were written at peers, by kind and verb: create, update, delete.",
}, []string{"kind", "verb"})

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(copiesWritten)
}
