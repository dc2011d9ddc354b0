package reflector

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

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
