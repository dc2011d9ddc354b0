package e2e

import (
	"context"
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Whoever the owner is, and whatever keeps its pods from being deleted otherwise, one pod goes and one is in its place.
func TestPodsOfEachOwnerMove(t *testing.T) {
	ctx := shared(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	template := func(app string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: shellSpec(forever)}
	}
	one := int32(1)
	breakable := shellSpec(forever)
	breakable.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "test ! -e /tmp/broken"}}},
		PeriodSeconds: 1, FailureThreshold: 1,
	}
	lubeck.create(t, &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rc"},
		Spec:       corev1.ReplicationControllerSpec{Replicas: &one, Selector: map[string]string{"app": "rc"}, Template: new(template("rc"))},
	})
	lubeck.create(t, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rs"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rs"}}, Template: template("rs")},
	})
	paused := deployment(ns, "paused", 1, shellSpec(forever))
	lubeck.create(t, paused)
	lubeck.create(t, deployment(ns, "broken", 2, breakable))
	lubeck.create(t, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "paused"}}},
	})
	pods := map[string]corev1.Pod{} // app → the one that is to move
	for _, app := range []string{"rc", "rs", "paused"} {
		pods[app] = lubeck.awaitReadyPods(t, ns, app, 1)[0]
	}
	broken := lubeck.breaks(t, ns)
	pods["broken"] = lubeck.awaitReadyPods(t, ns, "broken", 1)[0]
	if err := lubeck.Patch(ctx, paused, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":true}}`))); err != nil {
		t.Fatal(err)
	}

	moves := map[string]*v1alpha1.PodMove{}
	for app, pod := range pods {
		moves[app] = lubeck.moves(t, &pod, v1alpha1.MoveDestination{Peer: "hamburg"}, waitTimeout)
	}
	for app, move := range moves {
		lubeck.awaitMove(t, move, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
		ready := lubeck.awaitReadyPods(t, ns, app, 1)
		if ready[0].UID != move.Status.Copy.UID || !isVirtual(&ready[0]) {
			t.Errorf("%s: after %+v there is %s", app, move.Status, summary(ready))
		}
	}
	lubeck.expectKept(t, broken, moves["broken"])
	if err := lubeck.Get(ctx, client.ObjectKeyFromObject(paused), paused); err != nil || !paused.Spec.Paused {
		t.Errorf("the Deployment is paused: %t (%v)", paused.Spec.Paused, err)
	}
}

// expectKept checks that the broken sibling is there, since the original was evicted.
func (c *cluster) expectKept(t *testing.T, broken *corev1.Pod, move *v1alpha1.PodMove) {
	t.Helper()
	if !slices.ContainsFunc(move.Status.Steps, func(s v1alpha1.MoveStep) bool { return s.Action == v1alpha1.MoveEvicted }) {
		t.Errorf("the original was not evicted: %+v", move.Status.Steps)
	}
	now, err := c.pod(t.Context(), broken.Namespace, broken.Name)
	if err != nil || now.UID != broken.UID || now.DeletionTimestamp != nil {
		t.Errorf("the broken sibling was deleted (%v)", err)
	}
}

// breaks has one of the two pods not be Ready any more, and returns it.
func (c *cluster) breaks(t *testing.T, ns string) *corev1.Pod {
	t.Helper()
	pod := c.awaitReadyPods(t, ns, "broken", 2)[0]
	if out, err := c.Kubectl(t.Context(), "exec", "-n", ns, pod.Name, "--", "touch", "/tmp/broken"); err != nil {
		t.Fatal(err, out)
	}
	eventually(t, "it is not Ready", func(ctx context.Context) error {
		now, err := c.pod(ctx, ns, pod.Name)
		if err == nil && podReady(now) {
			err = errors.New("it is Ready")
		}
		return err
	})
	return &pod
}
