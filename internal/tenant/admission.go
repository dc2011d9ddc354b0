package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// admit builds the pod and gets room for it. It returns nil where the pod cannot be made now, which is then on record.
func (k *keeper) admit(ctx context.Context, seen *scene, next *decision) (*corev1.Pod, error) {
	who := claimantOf(seen.shadow, seen.peer)
	k.wake(k.ledger.enter(who))
	peer, err := k.readPeer(ctx, seen.peer)
	if err != nil {
		return nil, err
	}
	// What has run here before is made again whatever the peer's access is now.
	if reason, message := barred(peer); reason != "" && seen.shadow.Status.PodUID == "" {
		next.wait(seen, reason, message)
		return nil, nil
	}
	if id := k.config.ClusterID; id != "" && slices.Contains(seen.shadow.Spec.Path, id) {
		next.giveUp(seen, v1alpha1.ReasonLoop, "The pod has come through this cluster before: it may not come back")
		return nil, nil
	}
	pod, err := build(seen, peer)
	if err != nil {
		next.giveUp(seen, v1alpha1.ReasonPodInvalid, err.Error())
		return nil, nil
	}
	if !k.consult(ctx, seen, peer, pod, next) {
		return nil, nil
	}
	short, freed := k.ledger.reserve(who, demandOf(pod), limitsOf(peer).Resources)
	k.wake(freed)
	if short != nil {
		k.outOfLimits(seen, next, short.message())
		return nil, nil
	}
	return pod, nil
}

// outOfLimits waits for room for a pod that never ran. One that has run is not waited for, since home believes that it runs.
func (k *keeper) outOfLimits(seen *scene, next *decision, message string) {
	if seen.shadow.Status.PodUID == "" {
		next.wait(seen, v1alpha1.ReasonLimitExceeded, message)
		return
	}
	next.waitAWhile(seen, v1alpha1.ReasonLimitExceeded, message)
}

func claimantOf(shadow *v1alpha1.ShadowPod, peer string) claimant {
	return claimant{NamespacedName: client.ObjectKeyFromObject(shadow), uid: shadow.UID, peer: peer}
}

// readPeer returns the Peer, or an empty one when it is gone: its twins then go too.
func (k *keeper) readPeer(ctx context.Context, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: name}, peer); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Peer %s: %w", name, err)
	}
	return peer, nil
}

func limitsOf(peer *v1alpha1.Peer) v1alpha1.PeerLimits {
	if peer.Spec.Limits == nil {
		return v1alpha1.PeerLimits{}
	}
	return *peer.Spec.Limits
}

// barred says why the peer gets no pod that it does not have yet.
func barred(peer *v1alpha1.Peer) (reason, message string) {
	switch {
	case !peer.HasRole(v1alpha1.RoleConsumer) || !peer.DeletionTimestamp.IsZero():
		return v1alpha1.ReasonParting, "The provider is parting from this cluster"
	case peer.Access() == v1alpha1.AccessCordoned:
		return v1alpha1.ReasonPeerCordoned, "The provider takes no more pods of this cluster for now"
	case peer.Access() == v1alpha1.AccessDraining:
		return v1alpha1.ReasonPeerDraining, "The provider takes no more pods of this cluster, and asks to move away those that it has"
	case peer.Access() == v1alpha1.AccessSuspended:
		return v1alpha1.ReasonPeerSuspended, "The provider has suspended this cluster"
	default:
		return "", ""
	}
}

func rulesOf(seen *scene, peer *v1alpha1.Peer) offload.Rules {
	return offload.Rules{
		Path:          seen.path,
		Restricted:    peer.Spec.PodSecurity == v1alpha1.PodSecurityRestricted,
		LeastRequests: leastRequests(limitsOf(peer).Resources),
	}
}

func build(seen *scene, peer *v1alpha1.Peer) (*corev1.Pod, error) {
	pod, err := offload.Build(seen.shadow, rulesOf(seen, peer))
	if err != nil {
		return nil, err
	}
	pod.Labels[v1alpha1.LabelPeer] = seen.peer
	return pod, nil
}

// account keeps the ledger in line with what was decided: who needs no pod any more leaves it.
func (k *keeper) account(seen *scene, next *decision) {
	gone := next.unrecoverable() && !seen.ours()
	if ended(next.status.Phase) || gone {
		k.leave(client.ObjectKeyFromObject(seen.shadow))
	}
}

func (k *keeper) leave(name types.NamespacedName) {
	k.turnedAway.leave(name)
	k.carried.leave(name)
	k.wake(k.ledger.leave(name))
}

func (k *keeper) wake(names []types.NamespacedName) {
	for _, name := range names {
		k.queue.Add(reconcile.Request{NamespacedName: name})
	}
}

// takeQueue is a source of no events of its own: by it the keeper gets the queue in which it wakes those that wait.
func (k *keeper) takeQueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	k.queue = queue
	return nil
}

// waitingOf returns the ShadowPods that a change of the Peer's access or limits may let in, or of what policies know of it.
func (k *keeper) waitingOf(_ context.Context, peer client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, name := range append(k.ledger.waiters(peer.GetName()), k.turnedAway.of(peer.GetName())...) {
		out = append(out, reconcile.Request{NamespacedName: name})
	}
	return out
}

// podChanged enters what a pod asks for into the ledger. Who is entered too long leaves in the reconciliation that follows.
func (k *keeper) podChanged(ctx context.Context, o client.Object) []reconcile.Request {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	owner, peer := ownerShadow(pod), pod.Labels[v1alpha1.LabelPeer]
	if owner != nil && owner.Name == pod.Name && peer != "" && !hasEnded(&pod.Status) {
		who := claimant{NamespacedName: client.ObjectKeyFromObject(pod), uid: owner.UID, peer: peer}
		k.wake(k.ledger.see(who, demandOf(pod)))
	}
	return shadowOfPod(ctx, pod)
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
