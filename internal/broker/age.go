// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// ages says of Members that what they have said does not hold any more, and deletes those that are silent for long, whether there is still
// a broker or not.
type ages struct{ Config }

func setUpAges(mgr ctrl.Manager, c Config) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("member-ages").
		For(&v1alpha1.Member{}).
		WithOptions(options()).
		Complete(&ages{c})
}

// Reconcile looks at one Member.
func (a *ages) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	known, err := local.Find(ctx, a.Client, request.NamespacedName, &v1alpha1.Member{})
	if err != nil || known == nil {
		return reconcile.Result{}, err
	}
	now := a.Clock.Now()
	next := pinnedUntil(known).Sub(now)
	if next <= 0 {
		return reconcile.Result{}, a.drop(ctx, known)
	}
	status := known.Status.DeepCopy()
	if !neverHeard(known) {
		sayWhetherCurrent(status, now)
		if left := status.Expires.Sub(now); left > 0 {
			next = left
		}
	}
	_, err = a.writeMember(ctx, known, status)
	return reconcile.Result{RequeueAfter: next}, local.IgnoreStale(err)
}

// pinnedUntil is until when a Member is kept of which nothing new is heard.
func pinnedUntil(known *v1alpha1.Member) time.Time {
	if neverHeard(known) {
		return known.CreationTimestamp.Add(retention)
	}
	return known.Status.Expires.Add(retention)
}

// sayWhetherCurrent sets the conditions of a Member that was heard.
func sayWhetherCurrent(status *v1alpha1.MemberStatus, now time.Time) {
	said := metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeard, Message: "What the member has said last holds"}
	switch {
	case len(status.Brokers) == 0:
		said.Status, said.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotHeard
		said.Message = fmt.Sprintf("No broker names the member any more, %s as the last: it has left, or is kept from this cluster. Its key stays "+
			"pinned until %s; delete the Member if its administrator tells you that the key was replaced, or that there is no such cluster",
			status.LastBroker, status.Expires.Add(retention).UTC().Format(time.RFC3339))
	case !status.Expires.After(now):
		said.Status, said.Reason = metav1.ConditionFalse, v1alpha1.ReasonExpired
		said.Message = "Nothing new came from the member in time: it is cut off from its brokers, or they from this cluster"
	}
	for _, said.Type = range []string{v1alpha1.ConditionCurrent, v1alpha1.ConditionReady} {
		meta.SetStatusCondition(&status.Conditions, said)
	}
}

// writeMember writes the status of a Member, if it is another, on top of what was seen, and returns the Member as it is then.
func (c *Config) writeMember(ctx context.Context, known *v1alpha1.Member, status *v1alpha1.MemberStatus) (*v1alpha1.Member, error) {
	if equality.Semantic.DeepEqual(&known.Status, status) {
		return known, nil
	}
	changed := known.DeepCopy()
	changed.Status = *status
	if err := c.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(known, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("write the status of Member %s: %w", known.Name, err)
	}
	return changed, nil
}

// drop deletes a Member, unless it was written since it was seen.
func (c *Config) drop(ctx context.Context, known *v1alpha1.Member) error {
	asSeen := client.Preconditions{UID: &known.UID, ResourceVersion: &known.ResourceVersion}
	if err := c.Client.Delete(ctx, known.DeepCopy(), asSeen); local.IgnoreStale(err) != nil {
		return fmt.Errorf("delete Member %s: %w", known.Name, err)
	}
	return nil
}
