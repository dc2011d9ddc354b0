package reflector

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// maxNote is how long the note of an event may be.
const maxNote = 1024

// A move is a step that is being taken.
type move struct {
	request
	reflection.Step
	twin string        // the namespace over there
	peer client.Client // the way to it
}

// take does one step. Where the world has moved on meanwhile it does nothing: what moved it asks for another look.
func (c *copier) take(ctx context.Context, m move) error {
	switch m.Verb {
	case reflection.Create:
		return c.create(ctx, m)
	case reflection.Update:
		return c.update(ctx, m)
	case reflection.Replace:
		if err := c.delete(ctx, m); err != nil {
			return err
		}
		return c.create(ctx, m)
	case reflection.Delete:
		return c.delete(ctx, m)
	case reflection.Yield:
		c.tell(m, v1alpha1.ReasonReflectionConflict, fmt.Sprintf("Peer %q has a %s of this name of its own. It is left alone, "+
			"and pods there use it instead of this one", m.Peer, m.Kind))
	case reflection.Withhold:
		c.tell(m, v1alpha1.ReasonReflectionRefused, fmt.Sprintf("Pods at peer %q refer to it, but its label or annotation %s "+
			"keeps it at home", m.Peer, v1alpha1.LabelSkipReflection))
	}
	return nil
}

func (c *copier) create(ctx context.Context, m move) error {
	out, err := c.outbound(ctx, m)
	if err != nil || out == nil {
		return err
	}
	err = m.peer.Create(ctx, out)
	if apierrors.IsAlreadyExists(err) {
		return nil // the mirror is behind
	}
	if err != nil {
		return c.refused(m, err)
	}
	copiesWritten.WithLabelValues(string(m.Kind), string(reflection.Create)).Inc()
	ctrl.LoggerFrom(ctx).Info("Took to the peer what pods refer to", "name", m.Name)
	return nil
}

func (c *copier) update(ctx context.Context, m move) error {
	out, err := c.outbound(ctx, m)
	if err != nil {
		return err
	}
	if out == nil { // what must not go any more must not stay either
		return c.delete(ctx, m)
	}
	if out.GetAnnotations()[v1alpha1.AnnotationOriginVersion] == m.Found.GetAnnotations()[v1alpha1.AnnotationOriginVersion] {
		return nil // our own watch is behind
	}
	out.SetResourceVersion(m.Found.GetResourceVersion())
	err = m.peer.Update(ctx, out)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return c.refused(m, err)
	}
	copiesWritten.WithLabelValues(string(m.Kind), string(reflection.Update)).Inc()
	ctrl.LoggerFrom(ctx).Info("Took a change to the peer", "name", m.Name)
	return nil
}

// delete removes the copy that was seen, and no other object.
func (c *copier) delete(ctx context.Context, m move) error {
	uid, version := m.Found.GetUID(), m.Found.GetResourceVersion()
	doomed := m.empty()
	doomed.SetNamespace(m.twin)
	err := m.peer.Delete(ctx, doomed, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return err
	}
	copiesWritten.WithLabelValues(string(m.Kind), string(reflection.Delete)).Inc()
	ctrl.LoggerFrom(ctx).Info("Removed from the peer what pods referred to", "name", m.Name)
	return nil
}

// outbound reads the object and returns the copy that the twin should have, or nil if there must be none.
func (c *copier) outbound(ctx context.Context, m move) (client.Object, error) {
	source := m.empty()
	source.SetNamespace(m.Namespace)
	err := c.live.Get(ctx, client.ObjectKeyFromObject(source), source)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	out, err := reflection.Outbound(source, m.twin)
	if refusal, refused := errors.AsType[reflection.Refusal](err); refused {
		c.tell(m, v1alpha1.ReasonReflectionRefused, fmt.Sprintf("Pods at peer %q refer to it, but it does not go there: %s",
			m.Peer, refusal))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	object, ok := out.(client.Object)
	if !ok {
		return nil, fmt.Errorf("the copy is a %T", out)
	}
	return object, nil
}

// empty returns an object of the kind and name.
func (m *move) empty() client.Object {
	meta := metav1.ObjectMeta{Name: m.Name}
	if m.Kind == reflection.Secret {
		return &corev1.Secret{ObjectMeta: meta}
	}
	return &corev1.ConfigMap{ObjectMeta: meta}
}

// refused tells the user when it was the peer that did not take the copy, which may pass: a quota is one reason.
func (c *copier) refused(m move, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		c.tell(m, v1alpha1.ReasonReflectionRefused, fmt.Sprintf("Pods at peer %q refer to it, but the peer does not take it: %s",
			m.Peer, err))
	}
	return err
}

// tell makes an event on the object at home.
func (c *copier) tell(m move, reason, note string) {
	regarding := &corev1.ObjectReference{
		APIVersion: "v1", Kind: string(m.Kind), Namespace: m.Namespace, Name: m.Name, UID: m.Source.GetUID(),
	}
	c.events.Eventf(regarding, nil, corev1.EventTypeWarning, reason, "Reflect", "%s", sanitize.Text(note, maxNote))
}

// isAnswer says whether the error is what an API server has answered.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code > 0 && status.Status().Code < 500
}

// tellMissing makes an event on each pod that refers to an object that is not there at home: over there the pod's own
// kubelet says so to nobody but the provider. The reasons are those that users of virtual nodes know.
func (c *copier) tellMissing(ctx context.Context, req request, seen reflection.Sight) error {
	if !lacks(seen) {
		return nil
	}
	pods, err := c.podsOf(ctx, req)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		c.tellMissingOf(pod, req, seen.Sources)
	}
	return nil
}

func lacks(seen reflection.Sight) bool {
	for name := range seen.Wanted {
		if seen.Sources[name] == nil {
			return true
		}
	}
	return false
}

func (c *copier) tellMissingOf(pod *corev1.Pod, req request, sources map[string]metav1.Object) {
	for _, reference := range needs(pod) {
		if reference.Kind != req.Kind || sources[reference.Name] != nil {
			continue
		}
		kind, reason := missing(reference)
		regarding := &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		}
		c.events.Eventf(regarding, nil, kind, reason, "Reflect", "There is no %s %q in namespace %s",
			reference.Kind, reference.Name, pod.Namespace)
	}
}

// missing returns type and reason of the event about an object that is not there.
func missing(reference reflection.Reference) (kind, reason string) {
	switch {
	case reference.Kind == reflection.Secret && reference.Optional:
		return corev1.EventTypeNormal, v1alpha1.ReasonOptionalSecretNotFound
	case reference.Kind == reflection.Secret:
		return corev1.EventTypeWarning, v1alpha1.ReasonMandatorySecretNotFound
	case reference.Optional:
		return corev1.EventTypeNormal, v1alpha1.ReasonOptionalConfigMapNotFound
	default:
		return corev1.EventTypeWarning, v1alpha1.ReasonMandatoryConfigMapNotFound
	}
}

var copiesWritten = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "hanse_reflection_writes_total",
	Help: "Copies of what pods refer to that were written at peers, by kind and verb: create, update, delete.",
}, []string{"kind", "verb"})

func init() { //nolint:gochecknoinits // the registry of controller-runtime is global, as its documentation has it
	metrics.Registry.MustRegister(copiesWritten)
}
