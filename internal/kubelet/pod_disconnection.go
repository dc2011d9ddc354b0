package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
)

// disconnectedStatus returns the status of a pod whose provider does not answer: as it was when it was last heard of, but
// not ready, as that of a pod on a node that is not heard of. What the provider tells when it answers again replaces that.
func disconnectedStatus(home *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *home.Status.DeepCopy()
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
			continue
		}
		if c.Status != corev1.ConditionFalse {
			c.LastTransitionTime = now
		}
		c.Status, c.Reason = corev1.ConditionFalse, v1alpha1.ReasonDisconnected
		c.Message = "The provider does not answer, so nobody knows how the pod is"
	}
	return status
}

// replaceAfterDefault is for how long a provider is cut off before its pods are replaced, unless the user said.
const replaceAfterDefault = 5 * time.Minute

// tolerationsOf returns the tolerations by which the pod does on disconnection what its namespace wants, and whether they
// differ from those that it has. Kubernetes has put its own times on every pod, and the shortest wins, so these are changed
// and none is added. A time that is not Kubernetes' own was chosen by the user, or by our policy at admission, and stays.
func tolerationsOf(
	home *corev1.Pod, how *v1alpha1.NamespaceOffloadingSpec, byDefault time.Duration,
) ([]corev1.Toleration, bool) {
	wanted := stayFor(how)
	var tolerations []corev1.Toleration
	changed := false
	for _, toleration := range home.Spec.Tolerations {
		if isDefaultTime(&toleration, byDefault) && !ptr.Equal(toleration.TolerationSeconds, wanted) {
			toleration.TolerationSeconds = wanted
			changed = true
		}
		tolerations = append(tolerations, toleration)
	}
	return tolerations, changed
}

// stayFor returns for how many seconds pods of a provider that is cut off stay, or nil for as long as it takes.
func stayFor(how *v1alpha1.NamespaceOffloadingSpec) *int64 {
	if how.OnDisconnect != v1alpha1.DisconnectionReplace {
		return nil
	}
	return ptr.To(int64(durationOr(how.ReplaceAfter, replaceAfterDefault) / time.Second))
}

func durationOr(set *metav1.Duration, fallback time.Duration) time.Duration {
	if set == nil {
		return fallback
	}
	return set.Duration
}

func isDefaultTime(t *corev1.Toleration, byDefault time.Duration) bool {
	return (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable) &&
		t.Effect == corev1.TaintEffectNoExecute &&
		t.TolerationSeconds != nil && *t.TolerationSeconds == int64(byDefault/time.Second)
}

// tolerate has the pod do on disconnection what its namespace wants, and returns the pod as it is then. It returns nil if
// the pod is gone, or another one, by now.
func (c *podController) tolerate(
	ctx context.Context, home *corev1.Pod, how *v1alpha1.NamespaceOffloadingSpec,
) (*corev1.Pod, error) {
	tolerations, changed := tolerationsOf(home, how, c.defaultToleration)
	if !changed {
		return home, nil
	}
	// The API server refuses the list, and we come back, if somebody else has added to it meanwhile.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": home.UID},
		"spec":     map[string]any{"tolerations": tolerations},
	})
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("encode tolerations: %w", err))
	}
	target := &corev1.Pod{}
	target.Namespace, target.Name = home.Namespace, home.Name
	err = c.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("change tolerations of Pod: %w", err)
	}
	fault.Point(fault.TolerationsChanged)
	_, err = TrimPod(target) // as the cache has it, so that its revision is the same
	return target, err
}
