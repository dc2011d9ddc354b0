package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
)

// A manager that is killed while many pods move, by each method, is followed by one that brings each move to its end, from wherever it was.
func TestMovesSurviveTheirManager(t *testing.T) {
	alone(t)
	const crowd, ordinals = 6, 2
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away := v1alpha1.VirtualNodeName("hamburg")
	wanted := func(pod *corev1.Pod) *v1alpha1.PodMove {
		return podMoveOf(pod, v1alpha1.MoveDestination{Peer: "hamburg"}, 2*time.Minute)
	}
	for i := range crowd {
		lubeck.create(t, deployment(ns, fmt.Sprintf("web-%d", i), 1, shellSpec(forever)))
	}
	slow := shellSpec(forever) // an ordinal that ends leaves time to kill the manager before there is another one
	slow.TerminationGracePeriodSeconds = ptr.To[int64](10)
	slow.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}
	lubeck.create(t, statefulSet(ns, "db", ordinals, slow))
	lubeck.create(t, shellPod(ns, "lone", forever))
	moves := make([]*v1alpha1.PodMove, crowd)
	for i := range crowd {
		moves[i] = wanted(&lubeck.awaitReadyPods(t, ns, fmt.Sprintf("web-%d", i), 1)[0])
	}
	lone := lubeck.awaitReadyPods(t, ns, "lone", 1)[0]
	keepsName := wanted(&lone)
	keepsName.Spec.Method = v1alpha1.MoveDeleteFirst
	var steered []*v1alpha1.PodMove
	for _, pod := range lubeck.awaitReadyPods(t, ns, "db", ordinals) {
		steered = append(steered, wanted(&pod))
	}
	for _, move := range slices.Concat(steered, []*v1alpha1.PodMove{keepsName}, moves) {
		lubeck.create(t, move)
	}
	eventually(t, "the moves are in their middle", func(ctx context.Context) error { return lubeck.areInTheirMiddle(ctx, ns, crowd/2) })
	lubeck.kill9(t, "manager")
	lubeck.keepsName(t, keepsName, away)
	for i, move := range moves {
		lubeck.awaitMove(t, move, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
		now := lubeck.awaitReadyPods(t, ns, fmt.Sprintf("web-%d", i), 1)[0]
		if now.UID != move.Status.Copy.UID || !isVirtual(&now) || now.Annotations[corev1.PodDeletionCost] != "" {
			t.Errorf("after %+v there is %v", move.Status, now.ObjectMeta)
		}
	}
	for _, move := range steered {
		if now := lubeck.isSteered(t, move, away); now.Name != move.Spec.Pod.Name {
			t.Errorf("in the place of %s is %s", move.Spec.Pod.Name, now.Name)
		}
	}
	if pods, err := lubeck.pods(t.Context(), ns, "db"); err != nil || len(pods) != ordinals {
		t.Errorf("of the StatefulSet there are %s (%v)", summary(pods), err)
	}
	for _, move := range append(moves, steered...) {
		eventually(t, "nothing holds "+move.Name, func(ctx context.Context) error {
			err := lubeck.Get(ctx, client.ObjectKeyFromObject(move), move)
			if err == nil && len(move.Finalizers) > 0 {
				err = fmt.Errorf("it has %v", move.Finalizers)
			}
			return err
		})
	}
}

// areInTheirMiddle waits for a moment at which there are so many copies, and an ordinal is evicted whose successor was not sent to the
// destination.
func (c *cluster) areInTheirMiddle(ctx context.Context, ns string, want int) error {
	moves := &v1alpha1.PodMoveList{}
	if err := c.List(ctx, moves, client.InNamespace(ns)); err != nil {
		return err
	}
	copies, between := 0, 0
	for i := range moves.Items {
		status := &moves.Items[i].Status
		switch {
		case status.Method == v1alpha1.MoveSurge && status.Copy != nil:
			copies++
		case status.Phase == v1alpha1.MoveSteering && len(status.Steps) > 0 && status.Steps[len(status.Steps)-1].Action == v1alpha1.MoveEvicted:
			between++
		}
	}
	if copies < want || between == 0 {
		return fmt.Errorf("there are %d copies, and %d ordinals wait for their gate to be lifted", copies, between)
	}
	return nil
}

// Many pods of several owners move at once. No owner has fewer Ready pods than it wants at any time, and each pod is once at the destination.
// HANSE_MOVES sets how many: 100 is about what one worker holds.
func TestManyPodsMoveAtOnce(t *testing.T) {
	ctx := alone(t)
	const owners = 10
	each := fromEnvironment(t, "HANSE_MOVES", 30) / owners
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	var moves []*v1alpha1.PodMove
	var apps []string
	for i := range owners {
		apps = append(apps, fmt.Sprintf("web-%d", i))
		lubeck.create(t, deployment(ns, apps[i], int32(each), shellSpec(forever)))
	}
	for _, app := range apps {
		for _, pod := range lubeck.awaitReadyPods(t, ns, app, each) {
			moves = append(moves, podMoveOf(&pod, v1alpha1.MoveDestination{Peer: "hamburg"}, 10*time.Minute))
		}
	}
	seen, stop := lubeck.watchReady(t, ns, apps...)
	start := time.Now()
	for _, move := range moves {
		lubeck.create(t, move)
	}
	for _, move := range moves {
		lubeck.awaitMove(t, move, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
	}
	t.Logf("%d pods of %d owners have moved in %s", len(moves), owners, time.Since(start))
	for _, app := range apps {
		for _, pod := range lubeck.awaitReadyPods(t, ns, app, each) {
			if !isVirtual(&pod) || !slices.ContainsFunc(moves, func(m *v1alpha1.PodMove) bool { return m.Status.Copy.UID == pod.UID }) {
				t.Errorf("there is a pod that was not moved: %s", summary([]corev1.Pod{pod}))
			}
		}
	}
	if stop(); seen.least != each || seen.most > each+1 {
		t.Errorf("between %d and %d pods of an owner were Ready, want %d or one more", seen.least, seen.most, each)
	}
	remote := &corev1.PodList{}
	if err := hamburg.List(ctx, remote, client.InNamespace(tenant.TwinName("lubeck", ns))); err != nil || len(remote.Items) != len(moves) {
		t.Errorf("at hamburg are %d pods, want %d (%v)", len(remote.Items), len(moves), err)
	}
}
