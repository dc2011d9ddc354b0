package security

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
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// fill writes the largest objects that it may, of each size in turn, and must not get further than the room of the peer
// allows, which goes to where its records are. Then the victim starts a pod.
func fill(t *testing.T, g *framework.Guest, victim *framework.Guest, theirs string) {
	const room = 4 << 20
	twin := g.CreateTwin(t, "filled")
	awaitQuota(t, hamburg, twin, "count/shadowpods.hanse.dev", v1alpha1.DefaultLimitObjects)
	hamburg.SetLimits(t, g.ID, `{"mebibytes":4}`)
	awaitRoom(t, hamburg, twin, room/2)
	fillWith(t, g, "records", room, func(name, text string) client.Object {
		return framework.NewShadowPod(t, twin, name, template("hostPID: true", "args: ["+text+"]"))
	})
	fillWith(t, g, "copies", room, func(name, text string) client.Object {
		made := &corev1.ConfigMap{Data: map[string]string{"f": text}}
		made.Namespace, made.Name = twin, name
		made.Labels = map[string]string{v1alpha1.LabelReflected: "true"}
		return made
	})
	if err := victim.Create(t.Context(), framework.NewShadowPod(t, theirs, "beside-the-full", framework.BusyPodTemplate)); err != nil {
		t.Fatal(err)
	}
	victim.AwaitRunning(t, theirs, "beside-the-full")
}

// fillWith creates objects of each size until there is no room for another one.
func fillWith(t *testing.T, g *framework.Guest, kind string, room int, object func(name, text string) client.Object) {
	t.Helper()
	taken := 0
	for _, size := range []int{250 << 10, 60 << 10, 15 << 10} {
		for i := 0; ; i++ {
			err := g.Create(t.Context(), object(fmt.Sprintf("%d-%d", size, i), strings.Repeat("a", size)))
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "spec.limits.mebibytes") {
				break
			}
			if err != nil || taken > 4*room {
				t.Fatalf("%s: %d bytes were taken where there is room for %d: %v", kind, taken, room, err)
			}
			taken += size
		}
	}
	t.Logf("%s: %d bytes were taken where there is room for %d", kind, taken, room)
}

// awaitRoom waits until a twin says that it has room for at most so many bytes.
func awaitRoom(t *testing.T, c *framework.Cluster, twin string, most int) {
	t.Helper()
	framework.Eventually(t, "the twin says how much room it has", func(ctx context.Context) error {
		ns := &corev1.Namespace{}
		if err := c.Get(ctx, types.NamespacedName{Name: twin}, ns); err != nil {
			return err
		}
		share, err := strconv.Atoi(ns.Labels[v1alpha1.LabelRoom])
		if err == nil && share > most {
			err = fmt.Errorf("there is room for %d bytes", share)
		}
		return err
	})
}

// flood creates objects as fast as it can until the victim has started a pod.
func flood(t *testing.T, g *framework.Guest, victim *framework.Guest, theirs string) {
	flooded := g.CreateTwin(t, "flooded") // before the limit, which stories before this one have used up
	hamburg.SetLimits(t, g.ID, `{"objects":100,"namespaces":5}`)
	// In the first minute after installation Kubernetes does not know how to count Hanse's own kinds.
	awaitQuota(t, hamburg, flooded, "count/shadowpods.hanse.dev", 100)
	awaitQuota(t, hamburg, g.Invitation.Namespace, "count/namespacemappings.hanse.dev", 5)
	var creating sync.WaitGroup
	attack := floodOf{guest: g, twin: flooded}
	flooding, stop := context.WithCancel(t.Context())
	defer stop()
	for worker := range 8 {
		creating.Go(func() { attack.createMany(flooding, t, worker) })
	}
	if err := victim.Create(t.Context(), framework.NewShadowPod(t, theirs, "honest", framework.BusyPodTemplate)); err != nil {
		t.Fatal(err)
	}
	victim.AwaitRunning(t, theirs, "honest")
	stop()
	creating.Wait()
	made, refused := attack.made.Load(), attack.refused.Load()
	t.Logf("%d objects were made and %d refused", made, refused)
	if made > 100 || refused == 0 {
		t.Errorf("%d objects were made where 100 are allowed, %d refused", made, refused)
	}
	for i := range 20 {
		err := g.Create(t.Context(), framework.NewMapping(g.Invitation.Namespace, fmt.Sprintf("many-%d", i)))
		if apierrors.IsForbidden(err) {
			return
		}
	}
	t.Error("nothing bounds the number of mappings")
}

// awaitQuota waits until a quota of Hanse's is in force.
func awaitQuota(t *testing.T, c *framework.Cluster, ns string, name corev1.ResourceName, limit int64) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("quota %s of %s is %d", name, ns, limit), func(ctx context.Context) error {
		quota := &corev1.ResourceQuota{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: "hanse"}, quota); err != nil {
			return err
		}
		hard, used := quota.Status.Hard[name], quota.Status.Used
		if _, counted := used[name]; !counted || hard.Value() != limit {
			return fmt.Errorf("the quota is %v, used %v", quota.Status.Hard, used)
		}
		return nil
	})
}

// A floodOf creates records in a twin namespace of the guest, and counts those that were made and those that were refused.
type floodOf struct {
	guest         *framework.Guest
	twin          string
	made, refused atomic.Int64
}

// createMany is one of eight that create at least 1,000 records together, and more until it is stopped.
func (f *floodOf) createMany(stopped context.Context, t *testing.T, worker int) {
	for i := 0; i < 1000/8 || stopped.Err() == nil; i++ {
		record := framework.NewShadowPod(t, f.twin, fmt.Sprintf("flood-%d-%d", worker, i), template("hostPID: true", ""))
		if err := f.guest.Create(t.Context(), record); err == nil {
			f.made.Add(1)
		} else if apierrors.IsForbidden(err) {
			f.refused.Add(1)
		}
	}
}
