// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/trace"
	"github.com/hanse-dev/hanse/internal/unread"
)

// heldError is why a pod cannot go out, in words for its author. Only a change of theirs can help.
type heldError struct{ why string }

func (e *heldError) Error() string { return "the pod stays: " + e.why }

// sentPod is a pod as the provider is asked to run it.
type sentPod struct {
	pod      string
	revision string // of the home pod
}

// outbound returns the pod as the provider is asked to run it.
func (c *podController) outbound(ctx context.Context, home *corev1.Pod, seen *podFacts) (sentPod, error) {
	whole, err := wholePod(ctx, c.live, home)
	if err != nil {
		return sentPod{}, err
	}
	overridden, err := c.override(ctx, whole, seen.how.Overrides)
	if err != nil {
		return sentPod{}, err
	}
	if overridden, err = c.claimed(ctx, overridden); err != nil {
		return sentPod{}, err
	}
	sent, token, err := withOrWithoutToken(overridden, seen)
	if err != nil {
		return sentPod{}, reconcile.TerminalError(err)
	}
	if needs := reflection.References(&sent.Spec); seen.shadow == nil && len(needs) > 0 && lacksCopies(seen.to) != "" {
		return sentPod{}, reconcile.TerminalError(&heldError{
			fmt.Sprintf("it refers to %s %q. %s", needs[0].Kind, needs[0].Name, lacksCopies(seen.to)),
		})
	}
	template, err := offload.Outbound(sent, c.nodeIP)
	if err != nil {
		return sentPod{}, reconcile.TerminalError(&heldError{err.Error()})
	}
	raw, err := json.Marshal(template)
	if err != nil {
		return sentPod{}, reconcile.TerminalError(fmt.Errorf("encode pod: %w", err))
	}
	if len(raw) > v1alpha1.MaxShadowPodBytes {
		return sentPod{}, reconcile.TerminalError(&heldError{fmt.Sprintf(
			"its definition has %d bytes, and at most %d are taken to another cluster", len(raw), v1alpha1.MaxShadowPodBytes)})
	}
	return sentPod{pod: string(raw), revision: revision(home, seen.how.Overrides, token)}, nil
}

// lacksCopies says why ConfigMaps and Secrets do not go to the peer, in words for the author of a pod that refers to some, or "".
func lacksCopies(to *v1alpha1.Peer) string {
	if !to.Agentless() {
		return ""
	}
	asked := meta.FindStatusCondition(to.Status.Conditions, v1alpha1.ConditionAuthenticated)
	switch {
	case !to.Protocol().Copies:
		return "ConfigMaps and Secrets go to a cluster without Hanse only if spec.copies of its Peer is Configuration"
	case asked == nil || asked.ObservedGeneration < to.Generation || asked.Status == metav1.ConditionUnknown:
		return "It is not known yet whether ConfigMaps and Secrets may be copied there"
	case asked.Reason == v1alpha1.ReasonForbidden:
		return asked.Message
	default:
		return ""
	}
}

// override changes the pod as its namespace wants it in the clusters that its virtual node belongs to.
func (c *podController) override(
	ctx context.Context, home *corev1.Pod, overrides []v1alpha1.ClusterOverride,
) (*corev1.Pod, error) {
	if len(overrides) == 0 {
		return home, nil
	}
	node := &corev1.Node{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: home.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read Node %s: %w", home.Spec.NodeName, err)
	}
	overridden, err := offload.Override(home, overrides, labels.Set(node.Labels))
	if err != nil {
		return nil, reconcile.TerminalError(&heldError{"the NamespaceOffloading does not fit it: " + bounded(err.Error())})
	}
	return overridden, nil
}

// annotationRevision tells, on a ShadowPod, of which revision of the home pod it is. Comparing what went out with what
// would go out now costs a translation for each change of status, and would take a new address of the virtual node for
// a change of the pod.
const annotationRevision = v1alpha1.AnnotationHomeRevision

// revision changes whenever something changes at the home pod, or about how its namespace changes it, that may travel. Its end
// tells hasToken whether the pod has a Secret with its tokens.
func revision(home *corev1.Pod, overrides []v1alpha1.ClusterOverride, token bool) string {
	sum := fnv.New64a()
	// What the API server sent is JSON, and a hash never fails.
	_ = json.NewEncoder(sum).Encode([]any{home.Labels, home.Annotations, overrides})
	text := fmt.Sprintf("%d-%x", home.Generation, sum.Sum64())
	if token {
		return text + withToken
	}
	return text
}

// createShadow creates the record at the peer. If the pod is traced, it tells the peer of the trace; an older peer that
// does not know what that is may not keep the pod.
func (c *podController) createShadow(ctx context.Context, home *corev1.Pod, shadow *v1alpha1.ShadowPod, link *peers.Link) error {
	root := c.tracer.Home(home.UID)
	if !root.IsSampled() {
		return link.Client().Create(unread.Answer(ctx), shadow)
	}
	began := c.clock.Now()
	untold := shadow.DeepCopy()
	shadow.Annotations[v1alpha1.AnnotationTraceparent] = trace.Traceparent(root)
	err := link.Client().Create(unread.Answer(ctx), shadow)
	if apierrors.IsForbidden(err) {
		err = link.Client().Create(unread.Answer(ctx), untold)
	}
	c.tracer.Record(ctx, root, trace.Span{
		Name: "create ShadowPod", Start: began, End: c.clock.Now(), Err: err, Attributes: attributesOf(home),
	})
	return err
}

func attributesOf(home *corev1.Pod) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.K8SNamespaceName(home.Namespace), semconv.K8SPodName(home.Name), semconv.K8SPodUID(string(home.UID)),
		attribute.String(trace.AttributePeer, peerOf(home.Spec.NodeName)),
	}
}

// create asks the peer to run the pod.
func (c *podController) create(ctx context.Context, seen podFacts, link *peers.Link) error {
	sent, err := c.outbound(ctx, seen.home, &seen)
	var held *heldError
	if errors.As(err, &held) {
		return c.hold(ctx, seen.home, held.why)
	}
	if err != nil {
		return err
	}
	home, err := c.tolerate(ctx, seen.home, &seen.how)
	if home == nil || err != nil {
		return err
	}
	if changedBesides(seen.home, home) {
		if sent, err = c.outbound(ctx, home, &seen); err != nil {
			return err
		}
	}
	shadow, err := c.shadowOf(ctx, home, &seen, sent)
	if errors.As(err, &held) {
		return c.hold(ctx, seen.home, held.why)
	}
	if err != nil {
		return err
	}
	err = c.createShadow(ctx, home, shadow, link)
	if apierrors.IsAlreadyExists(err) {
		return c.collide(ctx, seen, link)
	}
	if err != nil {
		return &peerError{attempt: "create ShadowPod", err: err}
	}
	fault.Point(fault.ShadowCreated)
	shadowPodsCreated.Inc()
	ctrl.LoggerFrom(ctx).V(1).Info("Offloaded pod", "homeUID", home.UID)
	return nil
}

// shadowOf returns the record by which the peer is asked to run the pod.
func (c *podController) shadowOf(ctx context.Context, home *corev1.Pod, seen *podFacts, sent sentPod) (*v1alpha1.ShadowPod, error) {
	placement, err := offload.NewPlacement(seen.offloading)
	if err != nil {
		return nil, reconcile.TerminalError(&heldError{"the NamespaceOffloading does not fit it: " + bounded(err.Error())})
	}
	onward, err := c.onward(ctx, home, placement, seen.peer)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   seen.twin,
			Name:        home.Name,
			Annotations: map[string]string{annotationRevision: sent.revision},
			// The provider would put it on all the same, which costs its API server more.
			Finalizers: []string{v1alpha1.FinalizerShadowPod},
		},
		Spec: v1alpha1.ShadowPodSpec{
			HomeUID: home.UID, Path: offload.Path(home), Onward: onward, Pod: sent.pod,
			Request: placement.RequestFor(home, home.Spec.NodeName),
		},
	}, nil
}

// onward returns what is asked of each cluster that the peer sends the pod on to: by the pod's namespace, and by the clusters
// that the pod has come through.
func (c *podController) onward(ctx context.Context, home *corev1.Pod, placement offload.Placement, to string) (string, error) {
	var err error
	peerCalled := func(name string) *v1alpha1.Peer {
		peer := &v1alpha1.Peer{}
		readErr := c.client.Get(ctx, client.ObjectKey{Name: name}, peer, client.UnsafeDisableDeepCopy)
		err = errors.Join(err, client.IgnoreNotFound(readErr))
		return peer
	}
	asked := placement.AsksOnward(home, func(peer string) string {
		return cmp.Or(peerCalled(peer).Spec.ClusterID, peer) // one that is no Peer here may be behind one, and is called by its id
	})
	away := ptr.Deref(peerCalled(to).Status.RoundTripTime, metav1.Duration{}).Duration
	if err != nil {
		return "", fmt.Errorf("read Peers: %w", err)
	}
	text, err := offload.SendOnward(home, asked, away)
	if err != nil {
		return "", reconcile.TerminalError(&heldError{bounded(err.Error())})
	}
	return text, nil
}

// changedBesides says whether more has changed about a pod than its tolerations, which stay at home.
func changedBesides(before, after *corev1.Pod) bool {
	return after.Generation > before.Generation+1 ||
		!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}

// collide handles a record that exists though the mirror does not show it. Nothing is to be done about the pod's own:
// it is on its way to the mirror.
func (c *podController) collide(ctx context.Context, seen podFacts, link *peers.Link) error {
	found := &v1alpha1.ShadowPod{}
	key := client.ObjectKey{Namespace: seen.twin, Name: seen.home.Name}
	if err := link.Client().Get(ctx, key, found); err != nil {
		return &peerError{attempt: "read ShadowPod", err: err}
	}
	if found.Spec.HomeUID == seen.home.UID {
		return nil
	}
	req := request{Peer: link.Peer(), Namespace: seen.home.Namespace, Name: seen.home.Name}
	if err := c.clear(ctx, req, found, link); err != nil {
		return err
	}
	return errWaiting
}

// carry brings what changed about the pod since it went out.
func (c *podController) carry(ctx context.Context, seen podFacts, link *peers.Link) error {
	now := revision(seen.home, seen.how.Overrides, hasToken(seen.shadow))
	if !seen.answers || !seen.shadow.DeletionTimestamp.IsZero() || seen.shadow.Annotations[annotationRevision] == now {
		return nil
	}
	sent, err := c.outbound(ctx, seen.home, &seen)
	if err != nil {
		return err
	}
	changed := seen.shadow.DeepCopy()
	changed.Spec.Pod = sent.pod
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[annotationRevision] = now
	if err := link.Client().Update(unread.Answer(ctx), changed); err != nil {
		return &peerError{attempt: "update ShadowPod", err: err}
	}
	fault.Point(fault.ChangeCarried)
	return nil
}
