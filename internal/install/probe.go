package install

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// WaitPlaced waits until new pods of the namespace are placed as its offloading says, and as the manager has decided if
// there is something to decide; without an offloading, until they are placed as if there were no Hanse. Policies and their
// parameters take a moment to be acted on.
func (c Cluster) WaitPlaced(ctx context.Context, namespace string) error {
	return Until(ctx, "new pods of namespace "+namespace+" to be placed as it is wanted", func(ctx context.Context) (bool, error) {
		offloading := &v1alpha1.NamespaceOffloading{}
		key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName}
		err := c.Client.Get(ctx, key, offloading)
		switch {
		case apierrors.IsNotFound(err) || err == nil && !offloading.DeletionTimestamp.IsZero():
			return c.tryPod(ctx, namespace, offload.LeftAlone)
		case err != nil:
			return false, fmt.Errorf("read NamespaceOffloading %s: %w", key, err)
		case offloading.Spec.Strategy != v1alpha1.StrategyLocal && !isDecided(offloading):
			return false, nil
		}
		placement, err := offload.NewPlacement(offloading)
		if err != nil {
			return false, err
		}
		return c.tryPod(ctx, namespace, placement.Admitted)
	})
}

// isDecided reports whether the manager has looked at the spec as it is now. That no cluster fits is a decision too.
func isDecided(offloading *v1alpha1.NamespaceOffloading) bool {
	placed := meta.FindStatusCondition(offloading.Status.Conditions, v1alpha1.ConditionPlaced)
	return placed != nil && placed.ObservedGeneration >= offloading.Generation
}

// tryPod asks what would become of a pod, which is not made. Whoever may not make pods there, or such ones, cannot ask
// and need not wait.
func (c Cluster) tryPod(ctx context.Context, namespace string, isRight func(*corev1.Pod) bool) (bool, error) {
	probe := probePod(namespace)
	err := c.Client.Create(ctx, probe, client.DryRunAll)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && isRight(probe), err
}

// probePod is a pod that any namespace takes. It is never made.
func probePod(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "hanse-probe-"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:  "probe",
				Image: "probe",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
