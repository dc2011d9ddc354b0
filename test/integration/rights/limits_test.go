// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestQuotaRace creates far more pods at the same moment than the limit allows.
func TestQuotaRace(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const allowed = 5
	g := welcomeWithin(t, "visby-greedy", fmt.Sprintf(`{"resources":{"pods":"%d","cpu":"1"}}`, allowed))
	twins := []string{g.Twin(t, "one"), g.Twin(t, "two")}

	most := make(chan int, 1)
	watching, stop := context.WithCancel(ctx)
	go func() { most <- mostPods(watching, "visby-greedy") }()

	var creating sync.WaitGroup
	for i := range 50 {
		creating.Go(func() {
			if err := g.Create(ctx, framework.Shadow(t, twins[i%2], fmt.Sprintf("grab-%d", i), framework.BusyPod)); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	creating.Wait()
	full := func(ctx context.Context) error { return runsExactly(ctx, "visby-greedy", allowed) }
	framework.Eventually(t, "exactly as many pods run as the limit allows", full)
	framework.Eventually(t, "the others have the reason", func(ctx context.Context) error { return g.refusedByLimit(ctx, twins, 50-allowed) })

	// Pods that end make room for others.
	ended := 0
	for _, twin := range twins {
		ended += g.endAll(t, twin)
	}
	framework.Eventually(t, "others run instead", func(ctx context.Context) error {
		return errors.Join(full(ctx), g.refusedByLimit(ctx, twins, 50-allowed-ended))
	})
	stop()
	if got := <-most; got > allowed {
		t.Errorf("there were %d pods at one time, and %d are allowed", got, allowed)
	}
}

// TestPodsWithoutRequestsCount: each container without requests counts as 100m, so that no peer gets around a limit.
func TestPodsWithoutRequestsCount(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := welcomeWithin(t, "visby-modest", `{"resources":{"cpu":"150m"}}`)
	twin := g.Twin(t, "shop")
	modest := "spec:\n  containers: [{name: main, image: " + framework.TestImage + ", imagePullPolicy: IfNotPresent}]\n"
	if err := g.Create(ctx, framework.Shadow(t, twin, "first", modest)); err != nil {
		t.Fatal(err)
	}
	g.AwaitRunning(t, twin, "first")
	second := framework.Shadow(t, twin, "second", modest)
	if err := g.Create(ctx, second); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the second pod is refused for cpu", func(ctx context.Context) error {
		if err := g.Get(ctx, client.ObjectKeyFromObject(second), second); err != nil {
			return err
		}
		c := meta.FindStatusCondition(second.Status.Conditions, v1alpha1.ConditionScheduled)
		if c == nil || c.Reason != v1alpha1.ReasonLimitExceeded || !strings.Contains(c.Message, "cpu") {
			return fmt.Errorf("conditions: %+v", second.Status.Conditions)
		}
		return nil
	})
	if err := hamburg.Gone(ctx, &corev1.Pod{ObjectMeta: framework.Named(twin, "second")}); err != nil {
		t.Error(err)
	}
}

// runsExactly returns an error unless the peer has so many pods, and all are Ready.
func runsExactly(ctx context.Context, peer string, want int) error {
	pods := &corev1.PodList{}
	if err := hamburg.List(ctx, pods, client.MatchingLabels{v1alpha1.LabelPeer: peer}); err != nil {
		return err
	}
	ready := 0
	for i := range pods.Items {
		if framework.IsPodReady(&pods.Items[i]) {
			ready++
		}
	}
	if len(pods.Items) != want || ready != want {
		return fmt.Errorf("%d pods, %d Ready: %s", len(pods.Items), ready, framework.Summary(pods.Items))
	}
	return nil
}

// endAll deletes the ShadowPods of all pods that run in the remote namespace, and returns how many.
func (g *guest) endAll(t *testing.T, twin string) int {
	t.Helper()
	pods := &corev1.PodList{}
	if err := hamburg.List(t.Context(), pods, client.InNamespace(twin)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if err := g.Delete(t.Context(), &v1alpha1.ShadowPod{ObjectMeta: framework.Named(twin, pods.Items[i].Name)}); err != nil {
			t.Fatal(err)
		}
	}
	return len(pods.Items)
}

// refusedByLimit returns an error unless so many ShadowPods say that a limit is exceeded.
func (g *guest) refusedByLimit(ctx context.Context, twins []string, want int) error {
	found := 0
	for _, twin := range twins {
		list := &v1alpha1.ShadowPodList{}
		if err := g.List(ctx, list, client.InNamespace(twin)); err != nil {
			return err
		}
		for i := range list.Items {
			c := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.ConditionScheduled)
			if c != nil && c.Reason == v1alpha1.ReasonLimitExceeded && strings.Contains(c.Message, "pods") {
				found++
			}
		}
	}
	if found != want {
		return fmt.Errorf("%d ShadowPods are refused by the limit, want %d", found, want)
	}
	return nil
}

// mostPods watches the pods of a peer and returns how many there were at most at the same time. A watch that fails counts as
// too many.
func mostPods(ctx context.Context, peer string) int {
	const unknown = 1 << 30
	watching, err := client.NewWithWatch(hamburg.Config, client.Options{Scheme: hamburg.Scheme()})
	if err != nil {
		return unknown
	}
	stream, err := watching.Watch(ctx, &corev1.PodList{}, client.MatchingLabels{v1alpha1.LabelPeer: peer})
	if err != nil {
		return unknown
	}
	defer stream.Stop()
	most, now := 0, map[types.UID]bool{}
	for {
		select {
		case <-ctx.Done():
			return most
		case event, open := <-stream.ResultChan():
			if !open {
				if ctx.Err() != nil {
					return most
				}
				return unknown
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			if event.Type == "DELETED" {
				delete(now, pod.UID)
			} else {
				now[pod.UID] = true
			}
			most = max(most, len(now))
		}
	}
}
