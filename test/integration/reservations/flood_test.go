// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestRequestFlood: a guest creates, changes and deletes Requests as fast as it can. Quota and limits bound it, and another guest gets
// answers and capacity meanwhile. Without the limit the guest could reserve all free capacity.
func TestRequestFlood(t *testing.T) {
	ctx := t.Context()
	const berth, total, asked, pods = corev1.ResourceName("example.com/piers"), 1_000_000, 5, 20 // piers enough for both
	hamburg.SetExtendedResource(t, berth, total)
	hostile, other := welcomeWithin(t, "visby-flood", fmt.Sprintf(`{"resources":{"pods":"%d"}}`, pods)), welcome(t, "visby-calm")
	t.Cleanup(func() { disperse(t, hamburg, []*guest{hostile, other}) })
	for _, g := range []*guest{hostile, other} {
		g.awaitOffered(t, berth, total)
	}
	other.answerTimes(t, berth, "before", asked)
	flooding, stop := context.WithCancel(ctx)
	flood := hostile.askWithoutEnd(flooding, berth)
	hostile.awaitLimited(t)
	framework.Eventually(t, "the flood has met the quota, and goes on", func(context.Context) error {
		if taken, refused := flood.taken.Load(), flood.refused.Load(); refused == 0 || taken < 5*v1alpha1.MaxRequests {
			return fmt.Errorf("%d of its writes were taken, and %d refused", taken, refused)
		}
		return nil
	})
	other.answerTimes(t, berth, "during", asked)
	stop()
	flood.Wait()
	all := hostile.requests(ctx, t)
	reserved := corev1.ResourceList{}
	for i := range all {
		reserved = quota.Add(reserved, all[i].Locked())
	}
	if reserved.Pods().Value() > pods {
		t.Errorf("its Requests reserve %s pods", reserved.Pods())
	}
	t.Logf("of the flood %d writes were taken and %d refused, and it has %d Requests", flood.taken.Load(), flood.refused.Load(), len(all))
	hostile.getsNoMore(t, berth)
}

// getsNoMore waits until the quota refuses another Request. Kubernetes counts the objects of a quota after the fact, so that a flood
// can exceed it for a moment on a busy machine. It then refuses all Requests until there are fewer.
func (g *guest) getsNoMore(t *testing.T, of corev1.ResourceName) {
	t.Helper()
	made := 0
	framework.Eventually(t, "the quota has no room for more", func(ctx context.Context) error {
		for ; made < 3*v1alpha1.MaxRequests; made++ {
			switch err := g.Create(ctx, g.request(fmt.Sprintf("more-%d", made), of, 1)); {
			case apierrors.IsForbidden(err):
				return nil
			case err != nil:
				return err
			}
		}
		return fmt.Errorf("it has made %d more", made)
	})
}

// requests returns the Requests of the guest at the provider.
func (g *guest) requests(ctx context.Context, t *testing.T) []v1alpha1.Request {
	t.Helper()
	list := &v1alpha1.RequestList{}
	if err := g.Provider.List(ctx, list, client.InNamespace(g.Invitation.Namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// awaitLimited waits until a Request of the flood is refused because it exceeds a limit.
func (g *guest) awaitLimited(t *testing.T) {
	t.Helper()
	framework.Eventually(t, "the flood has met the limit", func(ctx context.Context) error {
		said := map[string]int{}
		for _, request := range g.requests(ctx, t) {
			if found := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAcknowledged); found != nil {
				said[found.Reason]++
			}
		}
		if said[v1alpha1.ReasonLimitExceeded] == 0 {
			return fmt.Errorf("its Requests say %v", said)
		}
		return nil
	})
}

// answerTimes makes so many Requests, one after the other, and logs how long the answers took.
func (g *guest) answerTimes(t *testing.T, of corev1.ResourceName, when string, asked int) {
	t.Helper()
	var took []time.Duration
	for i := range asked {
		name, began := fmt.Sprintf("%s-%d", when, i), time.Now()
		g.MustCreate(t, g.request(name, of, 1))
		g.awaitPhase(t, name, v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
		took = append(took, time.Since(began).Round(time.Millisecond))
	}
	t.Logf("%s the flood answers took %v", when, took)
}

// A flood counts writes without end.
type flood struct {
	sync.WaitGroup

	taken, refused atomic.Int64
}

// change sets the replicas of a component without resources.
func (g *guest) change(ctx context.Context, request *v1alpha1.Request, replicas int32) error {
	request.Spec.Components = []v1alpha1.RequestedComponent{{Name: "web", Replicas: replicas}}
	patch, err := json.Marshal(map[string]any{"spec": g.sign(request).Spec})
	if err != nil {
		return err
	}
	return g.Patch(ctx, request, client.RawPatch(types.MergePatchType, patch))
}

// askWithoutEnd creates and changes Requests until ctx ends, with many workers, and deletes half of them at most: after a flood the
// quota of Kubernetes may refuse Requests for minutes although all are deleted, and then there would be nothing left to change.
func (g *guest) askWithoutEnd(ctx context.Context, of corev1.ResourceName) *flood {
	const workers, names = 8, 40
	f := &flood{}
	for worker := range workers {
		f.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				request := g.request(fmt.Sprintf("flood-%d-%d", worker, rand.IntN(names)), of, 1)
				var err error
				switch i % 4 {
				case 0:
					request.Name = fmt.Sprintf("flood-%d-%d", worker, rand.IntN(names/2))
					err = g.Delete(ctx, request)
				case 1:
					err = g.change(ctx, request, 1+rand.Int32N(50))
				default:
					err = g.Create(ctx, request)
				}
				if err == nil {
					f.taken.Add(1)
				} else if apierrors.IsForbidden(err) {
					f.refused.Add(1)
				}
			}
		})
	}
	return f
}
