package tenant

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// A Decider asks the policies of this cluster's administrator.
type Decider interface {
	// HasPolicies reports whether anything but the built-in default answers the question. While that is not known yet, it
	// is true.
	HasPolicies(question policy.Question) bool
	// Decide answers the question about what is in the input. An error means that there is no answer, which is not no.
	Decide(ctx context.Context, question policy.Question, input policy.Input) (policy.Decision, error)
	// OnChange has ring called after the policies of the question were changed. It is to be called before the manager
	// starts.
	OnChange(question policy.Question, ring func())
}

// consult asks the policies about a pod that is about to be made, and changes it as they say. It reports whether they let
// it in; if not, that is on record, and a change of the policies or of the Peer brings us back.
func (k *keeper) consult(ctx context.Context, seen *scene, peer *v1alpha1.Peer, pod *corev1.Pod, next *decision) bool {
	who := claimantOf(seen.shadow, seen.peer)
	k.turnedAway.enter(who) // before the question, so that no change is missed
	answer, err := k.ask(ctx, seen, peer, pod)
	if err == nil && answer.Outcome == policy.Allow {
		k.turnedAway.leave(who.NamespacedName)
		patchPod(pod, answer.Pod)
		return true
	}
	k.wake(k.ledger.leave(who.NamespacedName))
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The policies gave no answer", "cause", err.Error())
		next.retry(seen, v1alpha1.ReasonPolicyFailed, "The provider's policies gave no answer about the pod: Hanse asks them again",
			policyRetryAtMost)
		return false
	}
	next.turnedAway(seen, answer.Reason)
	return false
}

// ask asks the policies about the pod as it would be. The built-in default lets every pod run as it is: where it is all
// that there is, a burst of pods need not pay for questions.
func (k *keeper) ask(ctx context.Context, seen *scene, peer *v1alpha1.Peer, pod *corev1.Pod) (policy.Decision, error) {
	if !k.config.Decider.HasPolicies(policy.ShadowPod) {
		return policy.Decision{Outcome: policy.Allow}, nil
	}
	input, err := policy.NewInput(policy.Facts{Time: seen.now, Peer: peer, Namespace: seen.twin, Pod: pod})
	if err != nil {
		return policy.Decision{}, fmt.Errorf("make the input: %w", err)
	}
	return k.config.Decider.Decide(ctx, policy.ShadowPod, input)
}

func patchPod(pod *corev1.Pod, patch *policy.PodPatch) {
	if patch != nil {
		patch.Apply(pod)
	}
}

// policiesChanged looks again at all that the policies did not let in. What runs is not asked about.
func (k *keeper) policiesChanged() { k.wake(k.turnedAway.takeAll()) }

// turnedAway are the ShadowPods that the policies have let no pod be made for, or were about to be asked about.
type turnedAway struct {
	mu    sync.Mutex
	names map[types.NamespacedName]string // ShadowPod → peer
}

func (a *turnedAway) enter(who claimant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.names == nil {
		a.names = map[types.NamespacedName]string{}
	}
	a.names[who.NamespacedName] = who.peer
}

func (a *turnedAway) leave(name types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.names, name)
}

// of returns those of one peer.
func (a *turnedAway) of(peer string) []types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []types.NamespacedName
	for name, whose := range a.names {
		if whose == peer {
			names = append(names, name)
		}
	}
	return names
}

// takeAll returns all and forgets them: who is turned away again comes back.
func (a *turnedAway) takeAll() []types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := make([]types.NamespacedName, 0, len(a.names))
	for name := range a.names {
		names = append(names, name)
	}
	clear(a.names)
	return names
}
