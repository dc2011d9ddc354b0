// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// fill creates the largest objects that the guest may, of each size in turn. The limit of the peer in mebibytes must hold, and
// the victim must be able to start a pod afterwards.
func (g *guest) fill(t *testing.T, victim *guest, theirs string) {
	const room = 4 << 20
	twin := g.Twin(t, "filled")
	awaitQuota(t, twin, "count/shadowpods.hanse.dev", v1alpha1.DefaultLimitObjects)
	limit(t, g.ID, `{"mebibytes":4}`)
	awaitRoom(t, twin, room/2)
	g.fillWith(t, "records", room, func(name, text string) client.Object {
		return framework.Shadow(t, twin, name, template("hostPID: true", "args: ["+text+"]"))
	})
	g.fillWith(t, "copies", room, func(name, text string) client.Object {
		reflected := &corev1.ConfigMap{ObjectMeta: framework.Named(twin, name), Data: map[string]string{"f": text}}
		reflected.Labels = map[string]string{v1alpha1.LabelReflected: "true"}
		return reflected
	})
	if err := victim.Create(t.Context(), framework.Shadow(t, theirs, "beside-the-full", framework.BusyPod)); err != nil {
		t.Fatal(err)
	}
	victim.AwaitRunning(t, theirs, "beside-the-full")
}

// fillWith creates objects of each size until the API server refuses another one.
func (g *guest) fillWith(t *testing.T, kind string, room int, object func(name, text string) client.Object) {
	t.Helper()
	taken := 0
	for _, size := range []int{250 << 10, 60 << 10, 15 << 10} {
		for i := 0; ; i++ {
			err := g.Create(t.Context(), object(fmt.Sprintf("%d-%d", size, i), strings.Repeat("a", size)))
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "spec.limits.mebibytes") {
				break
			}
			if err != nil || taken > 4*room {
				t.Fatalf("%s: the API server accepts %d bytes where %d are allowed: %v", kind, taken, room, err)
			}
			taken += size
		}
	}
	t.Logf("%s: the API server accepts %d bytes where %d are allowed", kind, taken, room)
}

// awaitRoom waits until the label of a remote namespace allows at most so many bytes.
func awaitRoom(t *testing.T, twin string, most int) {
	t.Helper()
	framework.Eventually(t, "the remote namespace has its share of the limit", func(ctx context.Context) error {
		ns := &corev1.Namespace{}
		if err := hamburg.Get(ctx, types.NamespacedName{Name: twin}, ns); err != nil {
			return err
		}
		share, err := strconv.Atoi(ns.Labels[v1alpha1.LabelRoom])
		if err == nil && share > most {
			err = fmt.Errorf("its share is %d bytes", share)
		}
		return err
	})
}

// flood creates objects as fast as it can until the victim has started a pod.
func (g *guest) flood(t *testing.T, victim *guest, theirs string) {
	flooded := g.Twin(t, "flooded") // before the limit, which earlier parts of this test have used up
	limit(t, g.ID, `{"objects":100,"namespaces":5}`)
	// In the first minute after installation Kubernetes does not know how to count Hanse's own kinds.
	awaitQuota(t, flooded, "count/shadowpods.hanse.dev", 100)
	awaitQuota(t, g.Invitation.Namespace, "count/namespacemappings.hanse.dev", 5)
	var (
		outcomes tally
		creating sync.WaitGroup
	)
	flooding, stop := context.WithCancel(t.Context())
	defer stop()
	for worker := range 8 {
		creating.Go(func() { g.createMany(flooding, t, flooded, worker, &outcomes) })
	}
	if err := victim.Create(t.Context(), framework.Shadow(t, theirs, "honest", framework.BusyPod)); err != nil {
		t.Fatal(err)
	}
	victim.AwaitRunning(t, theirs, "honest")
	stop()
	creating.Wait()
	created, refused := outcomes.created.Load(), outcomes.refused.Load()
	t.Logf("%d objects were created and %d refused", created, refused)
	if created > 100 || refused == 0 {
		t.Errorf("%d objects were created where 100 are allowed, %d refused", created, refused)
	}
	for i := range 20 {
		err := g.Create(t.Context(), framework.Mapping(g.Invitation.Namespace, fmt.Sprintf("many-%d", i)))
		if apierrors.IsForbidden(err) {
			return
		}
	}
	t.Error("nothing limits the number of mappings")
}

// awaitQuota waits until a quota of Hanse is in force.
func awaitQuota(t *testing.T, ns string, name corev1.ResourceName, limit int64) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("quota %s of %s is %d", name, ns, limit), func(ctx context.Context) error {
		quota := &corev1.ResourceQuota{}
		if err := hamburg.Get(ctx, types.NamespacedName{Namespace: ns, Name: "hanse"}, quota); err != nil {
			return err
		}
		hard, used := quota.Status.Hard[name], quota.Status.Used
		if _, counted := used[name]; !counted || hard.Value() != limit {
			return fmt.Errorf("the quota is %v, used %v", quota.Status.Hard, used)
		}
		return nil
	})
}

// A tally counts requests to create objects by their outcome.
type tally struct{ created, refused atomic.Int64 }

// createMany is one of eight workers that together create at least 1,000 ShadowPods, and more until it is stopped.
func (g *guest) createMany(stopped context.Context, t *testing.T, twin string, worker int, outcomes *tally) {
	for i := 0; i < 1000/8 || stopped.Err() == nil; i++ {
		pod := framework.Shadow(t, twin, fmt.Sprintf("flood-%d-%d", worker, i), template("hostPID: true", ""))
		if err := g.Create(t.Context(), pod); err == nil {
			outcomes.created.Add(1)
		} else if apierrors.IsForbidden(err) {
			outcomes.refused.Add(1)
		}
	}
}
