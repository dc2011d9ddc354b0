// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writers is how many pods are created at the same time.
const writers = 32

// Pod is what experiments make many of: one small container.
func Pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "burst"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/library/application:v1", Command: []string{"/application", "--serve"},
				Env: []corev1.EnvVar{{Name: "MODE", Value: "burst"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
				}},
			}},
		},
	}
}

// CreatePods creates so many pods, several at a time, and returns when each was: just before the request.
func (c *Cluster) CreatePods(ctx context.Context, size int, nth func(int) *corev1.Pod) (map[string]time.Time, error) {
	var mutex sync.Mutex
	written := make(map[string]time.Time, size)
	return written, Each(ctx, size, writers, func(ctx context.Context, n int) error {
		p := nth(n)
		now := clock.RealClock{}.Now()
		mutex.Lock()
		written[p.Name] = now
		mutex.Unlock()
		if err := c.Create(ctx, p); err != nil {
			return fmt.Errorf("create Pod %s: %w", p.Name, err)
		}
		return nil
	})
}

// Each does something for each number below count, so many at a time.
func Each(ctx context.Context, count, atOnce int, do func(ctx context.Context, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for n := range count {
		group.Go(func() error { return do(ctx, n) })
	}
	return group.Wait()
}

// DeletePods deletes all pods of a namespace. The API server has a minute for one request, which does not do for many
// thousands: then it is asked again.
func (c *Cluster) DeletePods(ctx context.Context, namespace string) error {
	for {
		err := c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace))
		if err == nil {
			return nil
		}
		outOfTime := apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
		if !outOfTime || ctx.Err() != nil {
			return fmt.Errorf("delete pods of %s in %s: %w", namespace, c.Name, err)
		}
	}
}

// AwaitNone waits until a namespace holds nothing of a list's kind any more.
func (c *Cluster) AwaitNone(ctx context.Context, list client.ObjectList, namespace string) error {
	what := fmt.Sprintf("namespace %s of %s is empty", namespace, c.Name)
	return Until(ctx, what, 200*time.Millisecond, waitTimeout, func(ctx context.Context) error {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
			return err
		}
		return none(list)
	})
}
