package e2e

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
)

// fill writes the largest objects that it may, of each size in turn, and must not get further than the room of the peer
// allows, which goes to where its records are. Then the victim starts a pod.
func (g *guest) fill(t *testing.T, victim *guest, theirs string) {
	const room = 4 << 20
	twin := g.twin(t, "filled")
	hamburg.awaitQuota(t, twin, "count/shadowpods.hanse.dev", v1alpha1.DefaultLimitObjects)
	hamburg.limit(t, g.id, `{"mebibytes":4}`)
	hamburg.awaitRoom(t, twin, room/2)
	g.fillWith(t, "records", room, func(name, text string) client.Object {
		return shadow(t, twin, name, template("hostPID: true", "args: ["+text+"]"))
	})
	g.fillWith(t, "copies", room, func(name, text string) client.Object {
		made := &corev1.ConfigMap{Data: map[string]string{"f": text}}
		made.Namespace, made.Name = twin, name
		made.Labels = map[string]string{v1alpha1.LabelReflected: "true"}
		return made
	})
	if err := victim.Create(t.Context(), shadow(t, theirs, "beside-the-full", busyPod)); err != nil {
		t.Fatal(err)
	}
	victim.awaitRunning(t, theirs, "beside-the-full")
}

// fillWith creates objects of each size until there is no room for another one.
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
				t.Fatalf("%s: %d bytes were taken where there is room for %d: %v", kind, taken, room, err)
			}
			taken += size
		}
	}
	t.Logf("%s: %d bytes were taken where there is room for %d", kind, taken, room)
}

// awaitRoom waits until a twin says that it has room for at most so many bytes.
func (c *cluster) awaitRoom(t *testing.T, twin string, most int) {
	t.Helper()
	eventually(t, "the twin says how much room it has", func(ctx context.Context) error {
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
func (g *guest) flood(t *testing.T, victim *guest, theirs string) {
	flooded := g.twin(t, "flooded") // before the limit, which stories before this one have used up
	hamburg.limit(t, g.id, `{"objects":100,"namespaces":5}`)
	// In the first minute after installation Kubernetes does not know how to count Hanse's own kinds.
	hamburg.awaitQuota(t, flooded, "count/shadowpods.hanse.dev", 100)
	hamburg.awaitQuota(t, g.invitation.Namespace, "count/namespacemappings.hanse.dev", 5)
	var (
		answers  tally
		creating sync.WaitGroup
	)
	flooding, stop := context.WithCancel(t.Context())
	defer stop()
	for worker := range 8 {
		creating.Go(func() { g.createMany(flooding, t, flooded, worker, &answers) })
	}
	if err := victim.Create(t.Context(), shadow(t, theirs, "honest", busyPod)); err != nil {
		t.Fatal(err)
	}
	victim.awaitRunning(t, theirs, "honest")
	stop()
	creating.Wait()
	made, refused := answers.made.Load(), answers.refused.Load()
	t.Logf("%d objects were made and %d refused", made, refused)
	if made > 100 || refused == 0 {
		t.Errorf("%d objects were made where 100 are allowed, %d refused", made, refused)
	}
	for i := range 20 {
		err := g.Create(t.Context(), mappingIn(g.invitation.Namespace, fmt.Sprintf("many-%d", i)))
		if apierrors.IsForbidden(err) {
			return
		}
	}
	t.Error("nothing bounds the number of mappings")
}

// awaitQuota waits until a quota of Hanse's is in force.
func (c *cluster) awaitQuota(t *testing.T, ns string, name corev1.ResourceName, limit int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("quota %s of %s is %d", name, ns, limit), func(ctx context.Context) error {
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

// A tally counts what became of requests to create something.
type tally struct{ made, refused atomic.Int64 }

// createMany is one of eight that create at least 1,000 records together, and more until it is stopped.
func (g *guest) createMany(stopped context.Context, t *testing.T, twin string, worker int, answers *tally) {
	for i := 0; i < 1000/8 || stopped.Err() == nil; i++ {
		record := shadow(t, twin, fmt.Sprintf("flood-%d-%d", worker, i), template("hostPID: true", ""))
		if err := g.Create(t.Context(), record); err == nil {
			answers.made.Add(1)
		} else if apierrors.IsForbidden(err) {
			answers.refused.Add(1)
		}
	}
}
