package market

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
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A Guest that makes, changes and deletes Requests as fast as it can, for as much as it can, gets no further than its quota and its
// limits, and keeps no other from an answer or from room. Without the limit it would have all pods that hamburg can run: who comes
// first may reserve what is free.
func TestRequestFlood(t *testing.T) {
	ctx := framework.Begin(t)
	const berth, total, asked, pods = corev1.ResourceName("example.com/piers"), 1_000_000, 5, 20 // piers enough for both
	hamburg.AddExtendedResource(t, string(berth), total)
	hostile, other := hamburg.PeerWithLimitedGuest(t, "visby-flood", fmt.Sprintf(`{"resources":{"pods":"%d"}}`, pods)), hamburg.PeerWithGuest(t, "visby-calm")
	t.Cleanup(func() { hamburg.ForgetGuests(t, []*framework.Guest{hostile, other}) })
	for _, g := range []*framework.Guest{hostile, other} {
		g.AwaitOffered(t, berth, total)
	}
	answerTimes(t, other, berth, "before", asked)
	flooding, stop := context.WithCancel(ctx)
	flood := askWithoutEnd(flooding, hostile, berth)
	awaitLimited(t, hostile)
	framework.Eventually(t, "the flood has met the quota, and goes on", func(context.Context) error {
		if taken, refused := flood.taken.Load(), flood.refused.Load(); refused == 0 || taken < 5*v1alpha1.MaxRequests {
			return fmt.Errorf("%d of its writes were taken, and %d refused", taken, refused)
		}
		return nil
	})
	answerTimes(t, other, berth, "during", asked)
	stop()
	flood.Wait()
	all := requests(ctx, t, hostile)
	reserved := corev1.ResourceList{}
	for i := range all {
		reserved = quota.Add(reserved, all[i].Locked())
	}
	if reserved.Pods().Value() > pods {
		t.Errorf("its Requests reserve %s pods", reserved.Pods())
	}
	t.Logf("of the flood %d writes were taken and %d refused, and it has %d Requests", flood.taken.Load(), flood.refused.Load(), len(all))
	getsNoMore(t, hostile, berth)
}

// getsNoMore waits until the quota has no room for another Request. Kubernetes counts what a quota bounds after the fact, so that on a busy
// machine a flood can exceed it for a moment: then nothing more is taken until there is less again.
func getsNoMore(t *testing.T, g *framework.Guest, of corev1.ResourceName) {
	t.Helper()
	made := 0
	framework.Eventually(t, "the quota has no room for more", func(ctx context.Context) error {
		for ; made < 3*v1alpha1.MaxRequests; made++ {
			switch err := g.Create(ctx, g.NewRequest(fmt.Sprintf("more-%d", made), of, 1)); {
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
func requests(ctx context.Context, t *testing.T, g *framework.Guest) []v1alpha1.Request {
	t.Helper()
	list := &v1alpha1.RequestList{}
	if err := g.Provider.List(ctx, list, client.InNamespace(g.Invitation.Namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// awaitLimited waits until the flood has reserved as much as it gets, and is refused more since a limit says so.
func awaitLimited(t *testing.T, g *framework.Guest) {
	t.Helper()
	framework.Eventually(t, "the flood has met the limit", func(ctx context.Context) error {
		said := map[string]int{}
		for _, request := range requests(ctx, t, g) {
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
func answerTimes(t *testing.T, g *framework.Guest, of corev1.ResourceName, when string, asked int) {
	t.Helper()
	var took []time.Duration
	for i := range asked {
		name, began := fmt.Sprintf("%s-%d", when, i), time.Now()
		g.MustCreate(t, g.NewRequest(name, of, 1))
		g.AwaitRequestPhase(t, name, v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)
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
func change(ctx context.Context, g *framework.Guest, request *v1alpha1.Request, replicas int32) error {
	request.Spec.Components = []v1alpha1.RequestedComponent{{Name: "web", Replicas: replicas}}
	patch, err := json.Marshal(map[string]any{"spec": g.Sign(request).Spec})
	if err != nil {
		return err
	}
	return g.Patch(ctx, request, client.RawPatch(types.MergePatchType, patch))
}

// askWithoutEnd has many make Requests until ctx ends, change what is there, and delete half of it at most: after a flood, the quota of
// Kubernetes may say for minutes that there is no room although all is deleted, and then there would be nothing left to change.
func askWithoutEnd(ctx context.Context, g *framework.Guest, of corev1.ResourceName) *flood {
	const workers, names = 8, 40
	f := &flood{}
	for worker := range workers {
		f.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				request := g.NewRequest(fmt.Sprintf("flood-%d-%d", worker, rand.IntN(names)), of, 1)
				var err error
				switch i % 4 {
				case 0:
					request.Name = fmt.Sprintf("flood-%d-%d", worker, rand.IntN(names/2))
					err = g.Delete(ctx, request)
				case 1:
					err = change(ctx, g, request, 1+rand.Int32N(50))
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
