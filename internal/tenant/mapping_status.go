package tenant

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// finding is what was found out about a mapping.
type finding struct {
	reason string
	twin   string
}

func (f finding) ready() bool { return f.reason == v1alpha1.ReasonTwinCreated }

const (
	// countingRecheck is how soon it is looked again whether a new quota is in force, which is most often at once.
	countingRecheck = 100 * time.Millisecond
	countingSoon    = 2 * time.Second
	// roomRecheck is for what no event tells: that a twin went whose NamespaceMapping had gone before.
	roomRecheck = time.Minute
)

// again says when to look again if no event comes.
func (r *mappingReconciler) again(mapping *v1alpha1.NamespaceMapping, found finding) time.Duration {
	switch found.reason {
	case v1alpha1.ReasonNamespaceTaken, v1alpha1.ReasonNamespaceTerminating:
		return lookAgain
	case v1alpha1.ReasonLimitExceeded:
		return roomRecheck
	case v1alpha1.ReasonPending:
		ready := meta.FindStatusCondition(mapping.Status.Conditions, v1alpha1.ConditionReady)
		waited := r.config.Clock.Since(ready.LastTransitionTime.Time)
		if waited < countingSoon {
			return countingRecheck
		}
		return min(waited, lookAgain)
	default:
		return 0
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
	case v1alpha1.ReasonTwinNameForbidden:
		return fmt.Sprintf("The provider does not let this cluster name a namespace %s: its administrator can allow it by "+
			"spec.twinNames of the Peer, unless it is a name of the system, or let the provider make the name", f.twin)
	case v1alpha1.ReasonLimitExceeded:
		return "The provider gives this cluster no more namespaces: it gets this one when another goes, or the limit is raised"
	case v1alpha1.ReasonPending:
		return fmt.Sprintf("The quota of namespace %s is not counted yet", f.twin)
	default:
		return fmt.Sprintf("Namespace %s is being deleted", f.twin)
	}
}

// report writes the status of the mapping, if it changed. A conflict means that the newer copy is on its way to us.
func (r *mappingReconciler) report(ctx context.Context, mapping *v1alpha1.NamespaceMapping, found finding) error {
	before := mapping.DeepCopy()
	mapping.Status.ObservedGeneration = mapping.Generation
	status := metav1.ConditionFalse
	switch {
	case found.ready():
		mapping.Status.Twin = found.twin
		status = metav1.ConditionTrue
	case found.reason != v1alpha1.ReasonPending:
		// A twin that was in use and whose quota is counted anew stays in use.
		mapping.Status.Twin = ""
	}
	meta.SetStatusCondition(&mapping.Status.Conditions, metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             status,
		ObservedGeneration: mapping.Generation,
		LastTransitionTime: metav1.NewTime(r.config.Clock.Now()),
		Reason:             found.reason,
		Message:            found.message(),
	})
	if equality.Semantic.DeepEqual(before.Status, mapping.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := ignoreStale(r.client.Status().Patch(ctx, mapping, patch)); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
