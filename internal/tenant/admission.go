// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/policy"
)

// admit builds the pod and gets room for it. It returns nil where the pod cannot be made now, which is then on record.
func (r *shadowPodReconciler) admit(ctx context.Context, seen *observation, next *decision) (*corev1.Pod, error) {
	who := claimantOf(seen.shadow, seen.peer)
	r.ledger.enter(who)
	peer, err := r.readPeer(ctx, seen.peer)
	if err != nil {
		return nil, err
	}
	// What has run here before is made again whatever the peer's access is now.
	if reason, message := barred(peer); reason != "" && seen.shadow.Status.PodUID == "" {
		next.wait(seen, reason, message)
		return nil, nil
	}
	if id := r.config.ClusterID; id != "" && slices.Contains(seen.shadow.Spec.Path, id) {
		next.giveUp(seen, v1alpha1.ReasonLoop, "The pod has come through this cluster before: it may not come back")
		return nil, nil
	}
	why, err := r.bound(ctx, seen)
	if err != nil {
		return nil, err
	}
	if seen.home, err = homeOf(ctx, r.client, seen.twin); err != nil {
		return nil, err
	}
	pod, err := build(seen, peer)
	if err != nil {
		next.giveUp(seen, v1alpha1.ReasonPodInvalid, err.Error())
		return nil, nil
	}
	if seen.shadow.Spec.Onward != "" {
		offload.NoteSentOn(pod, why)
	}
	if !r.consult(ctx, seen, peer, pod, next) {
		return nil, nil
	}
	short := r.ledger.reserve(who, exchange.Count(pod), limitsOf(peer).Resources)
	if short == nil {
		return pod, nil
	}
	next.await(seen, short)
	return nil, nil
}

// await says what is short. Of room nobody tells when there is more. One that has run is not waited for, since home believes
// that it runs.
func (d *decision) await(s *observation, short *shortage) {
	hasRun := s.shadow.Status.PodUID != ""
	switch {
	case short.reason == v1alpha1.ReasonNoRoom:
		if d.retry(s, short.reason, short.message(), quotaRetryAtMost) >= refusedFor && hasRun {
			d.giveUp(s, short.reason, short.message())
		}
	case hasRun:
		d.waitAWhile(s, short.reason, short.message())
	default:
		d.wait(s, short.reason, short.message())
	}
}

func claimantOf(shadow *v1alpha1.ShadowPod, peer string) claimant {
	return claimant{NamespacedName: client.ObjectKeyFromObject(shadow), uid: shadow.UID, peer: peer, request: shadow.Spec.Request}
}

// readPeer returns the Peer, or an empty one when it is gone: its twins then go too.
func (r *shadowPodReconciler) readPeer(ctx context.Context, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, peer); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Peer %s: %w", name, err)
	}
	return peer, nil
}

func limitsOf(peer *v1alpha1.Peer) v1alpha1.PeerLimits {
	return ptr.Deref(peer.Spec.Limits, v1alpha1.PeerLimits{})
}

// barred says why the peer gets no pod that it does not have yet.
func barred(peer *v1alpha1.Peer) (reason, message string) {
	if !peer.HasRole(v1alpha1.RoleConsumer) || !peer.DeletionTimestamp.IsZero() {
		return v1alpha1.ReasonParting, "The provider is parting from this cluster"
	}
	switch peer.Access() {
	case v1alpha1.AccessCordoned:
		return v1alpha1.ReasonPeerCordoned, "The provider takes no more pods of this cluster for now"
	case v1alpha1.AccessDraining:
		return v1alpha1.ReasonPeerDraining, "The provider takes no more pods of this cluster, and asks to move away those that it has"
	case v1alpha1.AccessSuspended:
		return v1alpha1.ReasonPeerSuspended, "The provider has suspended this cluster"
	default:
		return "", ""
	}
}

func rulesOf(seen *observation, peer *v1alpha1.Peer) offload.Rules {
	next := seen.next
	if seen.pod != nil { // where it may go was settled when it was made
		next = offload.Next(seen.pod)
	}
	return offload.Rules{
		Path:          seen.path,
		Next:          next,
		Home:          seen.home,
		Metadata:      seen.metadata,
		Restricted:    peer.Spec.PodSecurity == v1alpha1.PodSecurityRestricted,
		LeastRequests: exchange.LeastCount(limitsOf(peer).Resources),
	}
}

func build(seen *observation, peer *v1alpha1.Peer) (*corev1.Pod, error) {
	pod, err := offload.Build(seen.shadow, rulesOf(seen, peer))
	if err != nil {
		return nil, err
	}
	pod.Labels[v1alpha1.LabelPeer] = seen.peer
	if seen.shadow.Spec.Request != "" {
		pod.Labels[v1alpha1.LabelRequest] = seen.shadow.Spec.Request
	}
	if mayEnd(pod) {
		pod.Finalizers = []string{v1alpha1.FinalizerRemotePod}
	}
	offload.NoteAsked(&pod.ObjectMeta, offload.AskedOf(&pod.ObjectMeta, &pod.Spec))
	return pod, nil
}

func (r *shadowPodReconciler) enqueue(requests []reconcile.Request) {
	for _, request := range requests {
		r.queue.Add(request)
	}
}

// waitingOf returns the ShadowPods that a change of the Peer's access or limits may let in, or of what policies know of it.
func (r *shadowPodReconciler) waitingOf(_ context.Context, peer client.Object) []reconcile.Request {
	return r.ledger.waiters(peer.GetName())
}

// podChanged enters what a pod asks for into the ledger, and returns its ShadowPod, which has the same name. A ShadowPod
// that needs no pod any more is taken out in the reconciliation that follows.
func (r *shadowPodReconciler) podChanged(ctx context.Context, o client.Object) []reconcile.Request {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	if owner := v1alpha1.OwnerShadowPod(pod); owner != nil && owner.Name == pod.Name && !hasEnded(&pod.Status) {
		if peer := r.peerOf(ctx, pod.Namespace); peer != "" {
			who := claimant{NamespacedName: client.ObjectKeyFromObject(pod), uid: owner.UID, peer: peer, request: pod.Labels[v1alpha1.LabelRequest]}
			r.ledger.see(who, exchange.Count(pod))
		}
	}
	return requestFor(pod.Namespace, pod.Name)
}

// peerOf returns whose twin the namespace is, "" if it is nobody's. The cache may show a pod before its namespace.
func (r *shadowPodReconciler) peerOf(ctx context.Context, namespace string) string {
	ns, key := &corev1.Namespace{}, client.ObjectKey{Name: namespace}
	err := r.client.Get(ctx, key, ns, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, ns)
	}
	if err != nil {
		if !apierrors.IsNotFound(err) {
			ctrl.LoggerFrom(ctx).Error(err, "Read the namespace of a pod", "Namespace", namespace)
		}
		return ""
	}
	return v1alpha1.TwinPeer(ns)
}

// A quota's refusals carry no cause but their text. The two are those of a quota that is not counted yet, as of a new
// namespace, and of one that is full: neither is for good.
const (
	quotaUnknown  = "status unknown for quota"
	quotaExceeded = "exceeded quota"
)

// quotaRefusal returns why a quota does not let the pod in for now, if that is what the error says.
func quotaRefusal(err error) (reason, message string) {
	switch {
	case !apierrors.IsForbidden(err):
		return "", ""
	case strings.Contains(err.Error(), quotaUnknown):
		return v1alpha1.ReasonPending, "The quota of the twin namespace is not counted yet"
	case strings.Contains(err.Error(), quotaExceeded):
		return v1alpha1.ReasonLimitExceeded, "A quota of the twin namespace has no room for the pod: " +
			"it starts when other pods there have ended, or the quota is raised"
	default:
		return "", ""
	}
}

// consult asks the policies about a pod that is about to be made. It reports whether they let the pod in. If not, the
// ShadowPod says so, and is looked at again when the policies or the Peer change, and before that.
func (r *shadowPodReconciler) consult(ctx context.Context, seen *observation, peer *v1alpha1.Peer, pod *corev1.Pod, next *decision) bool {
	left := r.ask(ctx, seen, peer, pod, "the pod")
	if left == nil {
		return true
	}
	r.ledger.refuse(client.ObjectKeyFromObject(seen.shadow))
	if left.again > 0 {
		next.retry(seen, left.reason, left.message, left.again)
	} else {
		next.waitAWhile(seen, left.reason, left.message)
	}
	return false
}

// ask asks the policies about the pod, or a change of it, and changes the pod as they say. The built-in default lets every
// pod run as it is: where it is all that there is, a burst of pods need not pay for questions.
func (r *shadowPodReconciler) ask(ctx context.Context, seen *observation, peer *v1alpha1.Peer, pod *corev1.Pod, what string) *refusal {
	if !r.config.Decider.HasPolicies(policy.ShadowPod) {
		return nil
	}
	facts := policy.Facts{Time: seen.now, Peer: peer, Namespace: seen.twin, Pod: pod}
	answer, left := askPolicies(ctx, r.config.Decider, policy.ShadowPod, facts, what)
	if answer.Pod != nil {
		answer.Pod.Apply(pod)
	}
	return left
}

// askPolicies asks the question, and returns the answer if that is yes, or what the policies have against it.
func askPolicies(
	ctx context.Context, decider policy.Decider, question policy.Question, facts policy.Facts, what string,
) (policy.Decision, *refusal) {
	answer := policy.Decision{}
	input, err := policy.NewInput(facts)
	if err == nil {
		answer, err = decider.Decide(ctx, question, input)
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The policies gave no answer", "cause", err.Error())
		return policy.Decision{}, &refusal{
			v1alpha1.ReasonPolicyFailed, "The provider's policies gave no answer about " + what + ": Hanse asks them again", policyRetryAtMost,
		}
	}
	if answer.Outcome != policy.Allow {
		message := "The provider's policies refuse " + what
		if answer.Reason != "" {
			message += ": " + answer.Reason
		}
		return policy.Decision{}, &refusal{reason: v1alpha1.ReasonRefusedByPolicy, message: message}
	}
	return answer, nil
}

// policiesChanged looks again at all that have no pod. What runs is not asked about.
func (r *shadowPodReconciler) policiesChanged() { r.enqueue(r.ledger.waiters("")) }
