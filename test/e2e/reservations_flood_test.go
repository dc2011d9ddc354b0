package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A guest that makes, changes and deletes Requests as fast as it can gets no further than its quota, and keeps no other from an answer.
func TestRequestFlood(t *testing.T) {
	ctx := market(t)
	const berth, total, asked = corev1.ResourceName("example.com/piers"), 1_000_000, 5 // enough for both
	hamburg.berths(t, string(berth), total)
	hostile, other := hamburg.welcome(t, "visby-flood"), hamburg.welcome(t, "visby-calm")
	t.Cleanup(func() { hamburg.disperse(t, []*guest{hostile, other}) })
	for _, g := range []*guest{hostile, other} {
		g.awaitOffered(t, berth, total)
	}
	other.answerTimes(t, berth, "before", asked)
	flooding, stop := context.WithCancel(ctx)
	flood := hostile.askWithoutEnd(flooding, berth)
	other.answerTimes(t, berth, "during", asked)
	eventually(t, "the flood has met the quota", func(context.Context) error {
		if flood.refused.Load() == 0 {
			return fmt.Errorf("%d of its writes were taken, and none was refused", flood.taken.Load())
		}
		return nil
	})
	stop()
	flood.Wait()
	all := &v1alpha1.RequestList{}
	if err := hamburg.List(ctx, all, client.InNamespace(hostile.invitation.Namespace)); err != nil || len(all.Items) > v1alpha1.MaxRequests {
		t.Errorf("it has %d Requests (%v)", len(all.Items), err)
	}
	t.Logf("of the flood %d writes were taken and %d refused", flood.taken.Load(), flood.refused.Load())
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

// askWithoutEnd has many make Requests until ctx ends, change what is there, and delete some of it.
func (g *guest) askWithoutEnd(ctx context.Context, of corev1.ResourceName) *flood {
	f := &flood{}
	for worker := range 8 {
		f.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				request := g.request(fmt.Sprintf("flood-%d-%d", worker, i%40), of, 1)
				var err error
				switch i % 4 {
				case 3:
					err = g.Delete(ctx, request)
				default:
					if err = g.Create(ctx, request); apierrors.IsAlreadyExists(err) {
						err = g.Patch(ctx, request, client.RawPatch(types.MergePatchType,
							fmt.Appendf(nil, `{"spec":{"components":[{"name":"web","replicas":%d}]}}`, 1+i%1000)))
					}
				}
				if err == nil {
					f.taken.Add(1)
				} else if !apierrors.IsNotFound(err) && ctx.Err() == nil {
					f.refused.Add(1)
				}
			}
		})
	}
	return f
}
