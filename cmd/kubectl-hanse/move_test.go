// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// movable is a running pod of app on a node.
func movable(name, app, node, owner string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: app, Controller: ptr.To(true)}}
	}
	return pod
}

func readyNode(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

func moveWorld(t *testing.T) *world {
	t.Helper()
	labelled := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	ended := movable("sums-1", "sums", "worker-4", "Job")
	ended.Status.Phase = corev1.PodSucceeded
	w := newWorld(t,
		readyNode("worker-2"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "both"}},
		&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "hamburg"}}, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "both"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: labelled("web")}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "database"}, Spec: appsv1.StatefulSetSpec{Selector: labelled("database")}},
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sums"}, Spec: batchv1.JobSpec{Selector: labelled("sums")}},
		movable("database-0", "database", "worker-4", "StatefulSet"), ended, movable("sums-2", "sums", "worker-4", "Job"),
		movable("web-1", "web", "worker-1", "ReplicaSet"), movable("web-2", "web", "worker-2", "ReplicaSet"), movable("web-3", "web", "worker-3", "ReplicaSet"),
		movable("tool", "tool", "worker-1", ""), movable("agent", "agent", "worker-1", "DaemonSet"),
	)
	w.namespace = "shop"
	return w
}

// moves runs the verb, and returns which pods have PodMoves to where, and what was said.
func (w *world) moves(t *testing.T, flags moveFlags, args ...string) (pods []string, said string, err error) {
	t.Helper()
	command, out, told := listener()
	flags.deadline = time.Minute
	if err = flags.validate(args); err == nil {
		err = runMove(soon(t), command, w.connection, &flags, args)
	}
	list := &v1alpha1.PodMoveList{}
	if err := w.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		pods = append(pods, m.Spec.Pod.Name+" to "+m.Spec.Destination.NodeName())
	}
	return pods, out.String() + told.String(), err
}

// endsAs has each PodMove come to that end at once.
func endsAs(phase v1alpha1.MovePhase, reason, message string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, written client.Object) error {
		m, ok := written.(*v1alpha1.PodMove)
		if !ok {
			return nil
		}
		m.Status.Phase = phase
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: reason, Message: message})
		return c.Update(ctx, m)
	}
}

func TestMoveCreatesPodMoves(t *testing.T) {
	for name, test := range map[string]struct {
		flags moveFlags
		args  []string
		want  []string
		says  string
	}{
		"a pod to a peer":             {moveFlags{to: "hamburg"}, []string{"web-1"}, []string{"web-1 to hanse-hamburg"}, "1 pods are to move"},
		"a pod to a node":             {moveFlags{to: "worker-2"}, []string{"pod/tool"}, []string{"tool to worker-2"}, ""},
		"a Deployment":                {moveFlags{to: "worker-2"}, []string{"deployment/web"}, []string{"web-1 to worker-2", "web-3 to worker-2"}, "web-2 is there already"},
		"what has not ended of a Job": {moveFlags{to: "worker-2"}, []string{"job/sums"}, []string{"sums-2 to worker-2"}, ""},
		"a StatefulSet":               {moveFlags{to: "worker-2"}, []string{"sts/database"}, []string{"database-0 to worker-2"}, ""},
		"a node is emptied":           {moveFlags{to: "hamburg", from: "worker-1"}, nil, []string{"tool to hanse-hamburg", "web-1 to hanse-hamburg"}, "Left out: Pods of a DaemonSet"},
		"all that can move":           {moveFlags{to: "worker-2", all: true}, nil, []string{"database-0 to worker-2", "sums-2 to worker-2", "tool to worker-2", "web-1 to worker-2", "web-3 to worker-2"}, "Left out: Pods of a DaemonSet"},
		"a Deployment leaves a node":  {moveFlags{to: "hamburg", from: "worker-3"}, []string{"deployment/web"}, []string{"web-3 to hanse-hamburg"}, ""},
		"what is said to be a peer":   {moveFlags{to: "peer/both"}, []string{"tool"}, []string{"tool to hanse-both"}, ""},
		"what is said to be a node":   {moveFlags{to: "node/both"}, []string{"tool"}, []string{"tool to both"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := moveWorld(t)
			got, said, err := w.moves(t, test.flags, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(said, test.says) {
				t.Errorf("it says %q, want %q", said, test.says)
			}
		})
	}
}

func TestMoveRefusesWhatItCannotDo(t *testing.T) {
	for name, test := range map[string]struct {
		flags moveFlags
		args  []string
		says  string
	}{
		"to nowhere":               {moveFlags{}, []string{"tool"}, "--to is needed"},
		"nothing":                  {moveFlags{to: "hamburg"}, nil, "--from NODE"},
		"to what there is not":     {moveFlags{to: "atlantis"}, []string{"tool"}, "no node and no peer atlantis"},
		"to what is two things":    {moveFlags{to: "both"}, []string{"tool"}, "say node/both or peer/both"},
		"all, and some":            {moveFlags{to: "hamburg", all: true}, []string{"tool"}, "--all"},
		"less than nothing":        {moveFlags{to: "hamburg", maxUnavailable: -1}, []string{"tool"}, "at least 1"},
		"to count without waiting": {moveFlags{to: "hamburg", maxUnavailable: 1}, []string{"tool"}, "--wait=false"},
		"a pod that there is not":  {moveFlags{to: "hamburg"}, []string{"ghost"}, "ghost"},
		"what is no pod":           {moveFlags{to: "hamburg"}, []string{"service/web"}, "only pods, Deployments"},
		"a Deployment that is not": {moveFlags{to: "hamburg"}, []string{"deploy/ghost"}, "read ghost"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := moveWorld(t).moves(t, test.flags, test.args...)
			if err == nil || !strings.Contains(err.Error(), test.says) || len(got) > 0 {
				t.Errorf("error %v and moves %v, want %q", err, got, test.says)
			}
		})
	}
}

func TestMoveTellsWhatComesOfIt(t *testing.T) {
	waits := moveFlags{to: "hamburg", writeFlags: writeFlags{waitFlags: waitFlags{wait: true}}}
	w := moveWorld(t)
	w.manager = endsAs(v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved, "it runs there")
	if _, said, err := w.moves(t, waits, "tool", "web-1"); err != nil || !strings.Contains(said, "web-1: Succeeded: it runs there") || !strings.Contains(said, "2 pods have moved") {
		t.Errorf("%v, %s", err, said)
	}
	w = moveWorld(t)
	w.manager = endsAs(v1alpha1.MoveFailed, v1alpha1.ReasonNodeFull, "no room")
	if _, said, err := w.moves(t, waits, "tool"); err == nil || !strings.Contains(said, "tool: Failed: no room") || !strings.Contains(err.Error(), "1 of 1 pods have not moved") {
		t.Errorf("%v, %s", err, said)
	}
}

func TestNoMoreMoveAtATimeThanMayBeUnavailable(t *testing.T) {
	moves := []*v1alpha1.PodMove{{}, {}, {}, {}}
	for i := range moves {
		moves[i].Namespace, moves[i].GenerateName = "shop", "m-"
	}
	w := moveWorld(t)
	begun := func() (all int) {
		if err := begin(t.Context(), w.client, moves, 2); err != nil {
			t.Fatal(err)
		}
		for _, m := range moves {
			if m.Name != "" {
				all++
			}
		}
		return all
	}
	first, again := begun(), begun()
	moves[1].Status.Phase = v1alpha1.MoveFailed
	if more := begun(); first != 2 || again != 2 || more != 3 {
		t.Errorf("begun are %d, then %d, and %d when one is over", first, again, more)
	}
}

func TestMoveDryRunPrintsPodMoves(t *testing.T) {
	dry := moveFlags{to: "hamburg", writeFlags: writeFlags{dryRunFlags: dryRunFlags{dryRun: "client"}}}
	got, said, err := moveWorld(t).moves(t, dry, "tool")
	if err != nil || len(got) > 0 || !strings.Contains(said, "kind: PodMove") || !strings.Contains(said, "peer: hamburg") {
		t.Errorf("%v, %v: %s", err, got, said)
	}
	if want := "# tool to hanse-hamburg: it would fail: There is no node hanse-hamburg"; !strings.Contains(said, want) {
		t.Errorf("it says %q, want %q", said, want)
	}
	dry.to = "worker-2"
	for method, want := range map[string]v1alpha1.MoveMethod{"": v1alpha1.MoveSurge, "DeleteFirst": v1alpha1.MoveDeleteFirst} {
		dry.method = method
		if _, said, _ := moveWorld(t).moves(t, dry, "tool"); !strings.Contains(said, "# tool to worker-2: nothing stands against method "+string(want)) {
			t.Errorf("it says %q, want method %s", said, want)
		}
	}
}
