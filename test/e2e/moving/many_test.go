// SPDX-License-Identifier: Apache-2.0

package moving

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
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// crowd makes Deployments of so many pods each, and returns what they are called, and moves of all their pods.
func crowd(t *testing.T, c *framework.Cluster, ns string, owners, each int) (apps []string, moves []*v1alpha1.PodMove) {
	t.Helper()
	for i := range owners {
		apps = append(apps, fmt.Sprintf("web-%d", i))
		c.MustCreate(t, framework.NewDeployment(ns, apps[i], int32(each), framework.NewShellPodSpec(framework.RunForever)))
	}
	for _, app := range apps {
		moves = append(moves, movesOf(t, c, ns, app, each)...)
	}
	return apps, moves
}

// movesOf returns moves of so many pods of the app to hamburg, which are to be created.
func movesOf(t *testing.T, c *framework.Cluster, ns, app string, count int) (moves []*v1alpha1.PodMove) {
	t.Helper()
	for _, pod := range c.AwaitReadyPods(t, ns, app, count) {
		moves = append(moves, framework.NewPodMove(&pod, v1alpha1.MoveDestination{Peer: "hamburg"}, 10*time.Minute))
	}
	return moves
}

// A manager that is killed while many pods move, by each method, is followed by one that brings each move to its end, from wherever it was.
func TestMovesSurviveTheirManager(t *testing.T) {
	framework.Begin(t)
	const owners, ordinals = 6, 2
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := v1alpha1.VirtualNodeName("hamburg")
	slow := framework.NewShellPodSpec(framework.RunForever) // an ordinal that ends leaves time to kill the manager before there is another one
	slow.TerminationGracePeriodSeconds = ptr.To[int64](10)
	slow.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}
	lubeck.MustCreate(t, framework.NewStatefulSet(ns, "db", ordinals, slow))
	lubeck.MustCreate(t, framework.NewShellPod(ns, "lone", framework.RunForever))
	apps, moves := crowd(t, lubeck, ns, owners, 1)
	steered, keepsName := movesOf(t, lubeck, ns, "db", ordinals), movesOf(t, lubeck, ns, "lone", 1)[0]
	keepsName.Spec.Method = v1alpha1.MoveDeleteFirst
	for _, move := range slices.Concat(steered, []*v1alpha1.PodMove{keepsName}, moves) {
		lubeck.MustCreate(t, move)
	}
	framework.Eventually(t, "the moves are in their middle", func(ctx context.Context) error { return areInTheirMiddle(ctx, lubeck, ns, owners/2) })
	lubeck.KillHanse(t, "manager")
	lubeck.AwaitMovedInPlace(t, keepsName, away)
	for i, move := range moves {
		lubeck.AwaitMove(t, move, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
		expectMoved(t, lubeck, ns, apps[i], moves[i:i+1])
	}
	for _, move := range steered {
		if now := isSteered(t, lubeck, move, away); now.Name != move.Spec.Pod.Name {
			t.Errorf("in the place of %s is %s", move.Spec.Pod.Name, now.Name)
		}
	}
	if pods, err := lubeck.GetPods(t.Context(), ns, "db"); err != nil || len(pods) != ordinals {
		t.Errorf("of the StatefulSet there are %s (%v)", framework.Summarize(pods), err)
	}
	for _, move := range append(moves, steered...) {
		framework.Eventually(t, "nothing holds "+move.Name, func(ctx context.Context) error {
			err := lubeck.Get(ctx, client.ObjectKeyFromObject(move), move)
			if err == nil && len(move.Finalizers) > 0 {
				err = fmt.Errorf("it has %v", move.Finalizers)
			}
			return err
		})
	}
}

// expectMoved checks that the pods of the app are those that the moves have made, and no others.
func expectMoved(t *testing.T, c *framework.Cluster, ns, app string, moves []*v1alpha1.PodMove) {
	t.Helper()
	for _, pod := range c.AwaitReadyPods(t, ns, app, len(moves)) {
		isOfThem := slices.ContainsFunc(moves, func(m *v1alpha1.PodMove) bool { return m.Status.Copy.UID == pod.UID })
		if !isOfThem || !framework.IsOnVirtualNode(&pod) || pod.Annotations[corev1.PodDeletionCost] != "" {
			t.Errorf("there is %s with %v", framework.Summarize([]corev1.Pod{pod}), pod.ObjectMeta)
		}
	}
}

// areInTheirMiddle waits for a moment at which there are so many copies, and an ordinal is evicted whose successor was not sent to the
// destination.
func areInTheirMiddle(ctx context.Context, c *framework.Cluster, ns string, want int) error {
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
	ctx := framework.Begin(t)
	const owners = 10
	each := framework.IntFromEnvironment(t, "HANSE_MOVES", 20) / owners
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	apps, moves := crowd(t, lubeck, ns, owners, each)
	seen, stop := watchReady(t, lubeck, ns, apps...)
	start := time.Now()
	for _, move := range moves {
		lubeck.MustCreate(t, move)
	}
	for _, move := range moves {
		lubeck.AwaitMove(t, move, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
	}
	t.Logf("%d pods of %d owners have moved in %s", len(moves), owners, time.Since(start))
	for i, app := range apps {
		expectMoved(t, lubeck, ns, app, moves[i*each:(i+1)*each])
	}
	if stop(); seen.least != each || seen.most > each+1 {
		t.Errorf("between %d and %d pods of an owner were Ready, want %d or one more", seen.least, seen.most, each)
	}
	remote := &corev1.PodList{}
	if err := hamburg.List(ctx, remote, client.InNamespace(tenant.TwinName("lubeck", ns))); err != nil || len(remote.Items) != len(moves) {
		t.Errorf("at hamburg are %d pods, want %d (%v)", len(remote.Items), len(moves), err)
	}
}
