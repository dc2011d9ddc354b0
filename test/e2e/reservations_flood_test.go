package e2e

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
)

// A guest that makes, changes and deletes Requests as fast as it can, for as much as it can, gets no further than its quota and its
// limits, and keeps no other from an answer or from room. Without the limit it would have all pods that hamburg can run: who comes
// first may reserve what is free.
func TestRequestFlood(t *testing.T) {
	ctx := market(t)
	const berth, total, asked, pods = corev1.ResourceName("example.com/piers"), 1_000_000, 5, 20 // piers enough for both
	hamburg.berths(t, string(berth), total)
	hostile, other := hamburg.welcomeWithin(t, "visby-flood", fmt.Sprintf(`{"resources":{"pods":"%d"}}`, pods)), hamburg.welcome(t, "visby-calm")
	t.Cleanup(func() { hamburg.disperse(t, []*guest{hostile, other}) })
	for _, g := range []*guest{hostile, other} {
		g.awaitOffered(t, berth, total)
	}
	other.answerTimes(t, berth, "before", asked)
	flooding, stop := context.WithCancel(ctx)
	flood := hostile.askWithoutEnd(flooding, berth)
	hostile.awaitLimited(t)
	eventually(t, "the flood has met the quota, and goes on", func(context.Context) error {
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

// getsNoMore waits until the quota has no room for another Request. Kubernetes counts what a quota bounds after the fact, so that on a busy
// machine a flood can exceed it for a moment: then nothing more is taken until there is less again.
func (g *guest) getsNoMore(t *testing.T, of corev1.ResourceName) {
	t.Helper()
	made := 0
	eventually(t, "the quota has no room for more", func(ctx context.Context) error {
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

// requests are those that the provider has of the guest.
func (g *guest) requests(ctx context.Context, t *testing.T) []v1alpha1.Request {
	t.Helper()
	list := &v1alpha1.RequestList{}
	if err := g.provider.List(ctx, list, client.InNamespace(g.invitation.Namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// awaitLimited waits until the flood has reserved as much as it gets, and is refused more since a limit says so.
func (g *guest) awaitLimited(t *testing.T) {
	t.Helper()
	eventually(t, "the flood has met the limit", func(ctx context.Context) error {
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

// answerTimes asks so often, and tells how long the answers took.
func (g *guest) answerTimes(t *testing.T, of corev1.ResourceName, when string, asked int) {
	t.Helper()
	var took []time.Duration
	for i := range asked {
		name, began := fmt.Sprintf("%s-%d", when, i), time.Now()
		g.create(t, g.request(name, of, 1))
		g.awaitPhase(t, name, v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
		took = append(took, time.Since(began).Round(time.Millisecond))
	}
	t.Logf("%s the flood answers took %v", when, took)
}

// A flood is writes without end.
type flood struct {
	sync.WaitGroup

	taken, refused atomic.Int64
}

// change asks for so many replicas, of nothing.
func (g *guest) change(ctx context.Context, request *v1alpha1.Request, replicas int32) error {
	request.Spec.Components = []v1alpha1.RequestedComponent{{Name: "web", Replicas: replicas}}
	patch, err := json.Marshal(map[string]any{"spec": g.sign(request).Spec})
	if err != nil {
		return err
	}
	return g.Patch(ctx, request, client.RawPatch(types.MergePatchType, patch))
}

// askWithoutEnd has many make Requests until ctx ends, change what is there, and delete half of it at most: after a flood, the quota of
// Kubernetes may say for minutes that there is no room although all is deleted, and then there would be nothing left to change.
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
