package placement

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// fieldOwner is who writes status.placement and condition Placed.
const fieldOwner = client.FieldOwner("hanse-placement")

// report writes the outcome if it differs from what is there, and tells of a change.
func (c *Controller) report(ctx context.Context, offloading *v1alpha1.NamespaceOffloading, o outcome, now time.Time) error {
	said := ownPart(offloading)
	wanted := v1alpha1.NamespaceOffloadingStatus{Placement: o.placement}
	if o.condition != nil {
		wanted.Conditions = append(wanted.Conditions, said.Conditions...)
		o.condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&wanted.Conditions, *o.condition)
	}
	if equality.Semantic.DeepEqual(said, wanted) {
		return nil
	}
	if err := local.ApplyStatus(ctx, c.client, fieldOwner, offloading, &wanted); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.announce(ctx, offloading, o.condition)
	return nil
}

// announce tells the user of a change, and us. That only weights have moved is in the status and needs no telling.
func (c *Controller) announce(ctx context.Context, offloading *v1alpha1.NamespaceOffloading, now *metav1.Condition) {
	before := meta.FindStatusCondition(offloading.Status.Conditions, v1alpha1.ConditionPlaced)
	if now == nil || (before != nil && before.Status == now.Status && before.Reason == now.Reason && before.Message == now.Message) {
		return
	}
	kind, reason := corev1.EventTypeNormal, v1alpha1.ConditionPlaced
	if now.Status != metav1.ConditionTrue {
		kind, reason = corev1.EventTypeWarning, now.Reason
	}
	c.recorder.Eventf(offloading, nil, kind, reason, "Place", "%s", now.Message)
	ctrl.LoggerFrom(ctx).Info("Placement changed", "status", now.Status, "reason", now.Reason, "message", now.Message)
}
