// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Bound tells whether an object is a pod with a node.
func Bound(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && pod.Spec.NodeName != ""
}

// Ready tells whether a pod or a node is Ready.
func Ready(object client.Object) bool {
	switch o := object.(type) {
	case *corev1.Pod:
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}
	case *corev1.Node:
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue
			}
		}
	}
	return false
}

// Authenticated tells whether an object is a Peer that knows us.
func Authenticated(object client.Object) bool {
	peer, ok := object.(*v1alpha1.Peer)
	return ok && meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionAuthenticated)
}

// Accepted tells whether an object is an Advertisement whose receiver uses it.
func Accepted(object client.Object) bool {
	ad, ok := object.(*v1alpha1.Advertisement)
	return ok && ad.Status.Acknowledgement != nil && ad.Status.Acknowledgement.State == v1alpha1.AcknowledgementAccepted
}

// Active tells whether an object is a namespace that can be used.
func Active(object client.Object) bool {
	ns, ok := object.(*corev1.Namespace)
	return ok && ns.Status.Phase == corev1.NamespaceActive
}

// Until looks every interval until check finds nothing wrong. It is for what is not measured.
func Until(ctx context.Context, what string, interval, limit time.Duration, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, limit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, errors.Join(last, err, context.Cause(ctx)))
	}
	return nil
}

// TakenIn tells whether an object is our copy of an Advertisement that we use.
func TakenIn(object client.Object) bool {
	ad, ok := object.(*v1alpha1.Advertisement)
	return ok && meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted)
}

// Rest waits, so that what was set off before ends, or to measure what happens meanwhile.
func Rest(ctx context.Context, span time.Duration) error {
	select {
	case <-clock.RealClock{}.After(span):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
