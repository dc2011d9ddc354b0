package kubelet

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// heldError is why a pod cannot go out, in words for its author. Only a change of theirs can help.
type heldError struct{ why string }

func (e *heldError) Error() string { return "the pod stays: " + e.why }

// outbound returns the pod as the provider is asked to run it.
func (c *podController) outbound(
	ctx context.Context, home *corev1.Pod, how *v1alpha1.NamespaceOffloadingSpec,
) ([]byte, error) {
	home, err := wholePod(ctx, c.live, home)
	if err != nil {
		return nil, err
	}
	overridden, err := c.override(ctx, home, how.Overrides)
	if err != nil {
		return nil, err
	}
	template, err := offload.Outbound(overridden, offload.Options{HostIP: c.nodeIP})
	if err != nil {
		if why, refused := offload.Refusal(overridden); refused {
			return nil, reconcile.TerminalError(&heldError{why})
		}
		return nil, reconcile.TerminalError(fmt.Errorf("translate pod: %w", err))
	}
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("encode pod: %w", err))
	}
	if len(raw) > v1alpha1.MaxShadowPodBytes {
		return nil, reconcile.TerminalError(&heldError{fmt.Sprintf(
			"its definition has %d bytes, and at most %d are taken to another cluster", len(raw), v1alpha1.MaxShadowPodBytes)})
	}
	return raw, nil
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
