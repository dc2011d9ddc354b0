// SPDX-License-Identifier: Apache-2.0

package advertisements

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

const (
	placedNamespace = "bench-placement"
	// placementRounds is how often the best provider changes.
	placementRounds = 20
	// look is how often it is looked whether a change shows, and so how exact the figures are.
	look = 10 * time.Millisecond
)

// A Placement is how stale the decision is where new pods go.
type Placement struct {
	Decided measure.Sample // from a provider's new price to the status of the NamespaceOffloading
	Obeyed  measure.Sample // from the same to a pod that admission sends elsewhere
}

// place makes the provider that is the best one too expensive, again and again.
func (e *experiment) place(ctx context.Context) (Placement, error) {
	e.Say("%d providers: measuring how soon placement follows prices", e.Count)
	result := Placement{}
	offloading := &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: placedNamespace, Name: v1alpha1.NamespaceOffloadingName},
		Spec: v1alpha1.NamespaceOffloadingSpec{
			Strategy:  v1alpha1.StrategyRemote,
			Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice, Strict: true}},
		},
	}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: placedNamespace}}, offloading} {
		if err := e.consumer.Create(ctx, object); err != nil {
			return result, fmt.Errorf("create %T: %w", object, err)
		}
	}
	best := ""
	for range placementRounds + 1 {
		var start time.Time
		if best != "" {
			start = e.clock.Now()
			if err := e.raisePrice(ctx, best); err != nil {
				return result, err
			}
		}
		next, err := e.decided(ctx, offloading, best)
		if err != nil {
			return result, err
		}
		decided := e.clock.Now()
		if err := e.obeyed(ctx, next); err != nil {
			return result, err
		}
		if best != "" {
			result.Decided = append(result.Decided, decided.Sub(start))
			result.Obeyed = append(result.Obeyed, e.clock.Since(start))
		}
		best = next
		if err := lab.Rest(ctx, 2*time.Second); err != nil { // decisions come at most once a second
			return result, err
		}
	}
	return result, nil
}

// raisePrice makes the provider say that it has become more expensive than all others.
func (e *experiment) raisePrice(ctx context.Context, id string) error {
	ad := &v1alpha1.Advertisement{}
	if err := e.provider.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(id), Name: id}, ad); err != nil {
		return fmt.Errorf("read Advertisement %s: %w", id, err)
	}
	changed := ad.DeepCopy()
	changed.Spec.Sequence++
	changed.Spec.FullSequence = changed.Spec.Sequence
	changed.Spec.Prices.PerHour[corev1.ResourceCPU] = resource.MustParse("9")
	return e.provider.Patch(ctx, changed, client.MergeFrom(ad))
}

// decided waits until another provider than the one before is the best.
func (e *experiment) decided(ctx context.Context, offloading *v1alpha1.NamespaceOffloading, before string) (string, error) {
	best := ""
	err := wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
		if err := e.consumer.Get(ctx, client.ObjectKeyFromObject(offloading), offloading); err != nil {
			return false, err
		}
		if decided := offloading.Status.Placement; decided != nil && len(decided.Only) > 0 {
			best = strings.TrimPrefix(decided.Only[0], v1alpha1.VirtualNodePrefix)
		}
		return best != "" && best != before, nil
	})
	return best, err
}

// obeyed waits until a new pod may run at that provider alone.
func (e *experiment) obeyed(ctx context.Context, id string) error {
	return wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: placedNamespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
		}
		err := e.consumer.Create(ctx, pod, client.DryRunAll)
		return err == nil && sentTo(pod, id), err
	})
}

// sentTo reports whether the pod's required affinity names the peer.
func sentTo(pod *corev1.Pod, id string) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Operator == corev1.NodeSelectorOpIn && slices.Contains(e.Values, id) {
				return true
			}
		}
	}
	return false
}
