package tenant

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// finding is what was found out about a mapping.
type finding struct {
	reason string
	twin   string
}

func (f finding) ready() bool { return f.reason == v1alpha1.ReasonTwinCreated }

func (f finding) retry() reconcile.Result {
	switch f.reason {
	case v1alpha1.ReasonNamespaceTaken, v1alpha1.ReasonNamespaceTerminating:
		return reconcile.Result{RequeueAfter: lookAgain}
	default:
		return reconcile.Result{}
	}
}

func (f finding) message() string {
	switch f.reason {
	case v1alpha1.ReasonTwinCreated:
		return ""
	case v1alpha1.ReasonNamespaceForbidden:
		return "Namespaces of a system are not offloaded"
	case v1alpha1.ReasonNamespaceTaken:
		return fmt.Sprintf("Namespace %s exists and is not the twin of this namespace", f.twin)
	default:
		return fmt.Sprintf("Namespace %s is being deleted", f.twin)
	}
}

// report writes the status of the mapping, if it changed. A conflict means that the newer copy is on its way to us.
func (m *mapper) report(ctx context.Context, mapping *v1alpha1.NamespaceMapping, found finding) error {
	before := mapping.DeepCopy()
	mapping.Status.ObservedGeneration = mapping.Generation
	mapping.Status.Twin = ""
	status := metav1.ConditionFalse
	if found.ready() {
		mapping.Status.Twin = found.twin
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&mapping.Status.Conditions, metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             status,
		ObservedGeneration: mapping.Generation,
		LastTransitionTime: metav1.NewTime(m.config.Clock.Now()),
		Reason:             found.reason,
		Message:            found.message(),
	})
	if equality.Semantic.DeepEqual(before.Status, mapping.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := ignoreStale(m.client.Status().Patch(ctx, mapping, patch)); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
