// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// renewalJitter spreads the renewals of many nodes that were made at once.
	renewalJitter = 0.1
	// renewalsPerSecond is how many renewals of many nodes there are before each renews less often: they are most of the
	// requests that a thousand idle peers cause, and it is the API server that they cost most.
	renewalsPerSecond = 40
)

// leaseController renews the leases of virtual nodes, by which Kubernetes knows that they are alive. Requests are names
// of Nodes.
type leaseController struct {
	client  client.Client
	clock   clock.PassiveClock
	lasts   time.Duration
	renewal time.Duration
	nodes   func() int // how many there are
}

// Reconcile renews the lease of one virtual node, with one request and without reading the lease.
func (c *leaseController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := c.client.Get(ctx, req.NamespacedName, node, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	lease := c.lease(node)
	err := c.client.Patch(ctx, lease, client.Merge)
	if apierrors.IsNotFound(err) {
		err = c.client.Create(ctx, lease)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("renew lease: %w", err)
	}
	return reconcile.Result{RequeueAfter: wait.Jitter(c.pause(), renewalJitter)}, nil
}

// pause returns how often each lease is renewed: as often as was asked for, unless they are many. A renewal
// that fails must leave time for another one, so half of a lease is the most.
func (c *leaseController) pause() time.Duration {
	spread := time.Duration(c.nodes()) * time.Second / renewalsPerSecond
	return max(c.renewal, min(spread, c.lasts/2))
}

func (c *leaseController) lease(node *corev1.Node) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: node.Name,
			// With a Node that was deleted and made again its old lease goes, and a new one is made.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(node.Name),
			LeaseDurationSeconds: ptr.To(int32(min(c.lasts/time.Second, math.MaxInt32))), //nolint:gosec // it is bounded
			RenewTime:            ptr.To(metav1.NewMicroTime(c.clock.Now())),
		},
	}
}
