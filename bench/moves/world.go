// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
)

const (
	namespace = "moves"
	name      = "web" // of the Deployment

	waitTimeout = 2 * time.Minute // for what is not measured
)

// Milestones: of a pod, and of a PodMove.
const (
	created = "created"
	ready   = "Ready"
	begins  = "begun"
	over    = "over"
)

// A world is a cluster with a Deployment on simulated nodes.
type world struct {
	Config
	*lab.Cluster
	manager *lab.Server
	nodes   []string
	pods    *lab.Observer
	moves   *lab.Observer
	clock   clock.Clock
}

func open(ctx context.Context, config Config, fail context.CancelCauseFunc) (*world, error) {
	w := &world{Config: config, clock: clock.RealClock{}}
	flags := []string{"--workers", "0", "--audit", "--simulated-nodes", strconv.Itoa(lab.NodesFor(config.Count))}
	if config.SchedulerQPS > 0 {
		qps := strconv.Itoa(config.SchedulerQPS)
		flags = append(flags, "--arg", "scheduler:kube-api-qps="+qps, "--arg", "scheduler:kube-api-burst="+qps)
	}
	if err := w.Bed.Up(ctx, flags, "alone"); err != nil {
		return w, err
	}
	var err error
	if w.Cluster, err = w.Bed.Cluster(ctx, "alone"); err != nil {
		return w, err
	}
	if err := errors.Join(w.Install(ctx), w.Namespace(ctx, namespace)); err != nil {
		return w, err
	}
	if w.manager, err = w.StartManager(ctx, fail); err != nil {
		return w, err
	}
	return w, errors.Join(w.observe(ctx), w.deploy(ctx))
}

func (w *world) observe(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := w.List(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		w.nodes = append(w.nodes, nodes.Items[i].Name)
	}
	in := []client.ListOption{client.InNamespace(namespace)}
	var err error
	if w.pods, err = w.Observe(ctx, &corev1.PodList{}, in, lab.Milestone{Name: created, Reached: lab.Created}, lab.Milestone{Name: ready, Reached: lab.Ready}); err != nil {
		return err
	}
	phase := func(object client.Object) v1alpha1.MovePhase {
		if move, ok := object.(*v1alpha1.PodMove); ok {
			return move.Status.Phase
		}
		return ""
	}
	w.moves, err = w.Observe(ctx, &v1alpha1.PodMoveList{}, in,
		lab.Milestone{Name: begins, Reached: func(o client.Object) bool { return phase(o) != "" && phase(o) != v1alpha1.MovePending }},
		lab.Milestone{Name: over, Reached: func(o client.Object) bool { return phase(o).IsOver() }})
	return err
}

// deploy waits until all pods of the Deployment are Ready.
func (w *world) deploy(ctx context.Context) error {
	pod := lab.Pod(namespace, name)
	err := w.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(w.Count)), //nolint:gosec // some hundreds
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	})
	if err != nil {
		return fmt.Errorf("create Deployment %s: %w", name, err)
	}
	if err := w.pods.Wait(ctx, ready, w.Count); err != nil {
		return err
	}
	return w.whole(ctx)
}

// whole waits until the ReplicaSet says that all its pods are Ready, and there are no others.
func (w *world) whole(ctx context.Context) error {
	return lab.Until(ctx, "all pods are there once", 100*time.Millisecond, waitTimeout, func(ctx context.Context) error {
		sets := &appsv1.ReplicaSetList{}
		if err := w.List(ctx, sets, client.InNamespace(namespace)); err != nil {
			return err
		}
		if status := sets.Items[0].Status; int(status.ReadyReplicas) != w.Count || int(status.Replicas) != w.Count {
			return fmt.Errorf("the ReplicaSet has %+v", status)
		}
		_, err := w.active(ctx)
		return err
	})
}

// active are the pods of the Deployment.
func (w *world) active(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := w.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(pods) != w.Count {
		return nil, fmt.Errorf("there are %d pods, want %d", len(pods), w.Count)
	}
	return pods, nil
}

// countReady follows how many pods are Ready, as the ReplicaSet says, until stop.
func (w *world) countReady(ctx context.Context, m *Measured) (stop func() error, err error) {
	m.Least = int32(w.Count) //nolint:gosec // some hundreds
	sets, err := w.Observe(ctx, &appsv1.ReplicaSetList{}, []client.ListOption{client.InNamespace(namespace)}, lab.Milestone{
		Name: "never", Reached: func(object client.Object) bool {
			if set, ok := object.(*appsv1.ReplicaSet); ok {
				m.Least, m.Most = min(m.Least, set.Status.ReadyReplicas), max(m.Most, set.Status.ReadyReplicas)
			}
			return false
		},
	})
	return func() error { sets.Close(); return nil }, err
}

// settle waits until the Deployment is as it was and Hanse has nothing to do, and reads what was written until then.
func (w *world) settle(ctx context.Context, log *audit.Log, m *Measured) error {
	if err := w.manager.Settle(ctx, nil); err != nil {
		return err
	}
	if err := w.whole(ctx); err != nil {
		return err
	}
	requests, err := log.Next()
	for _, r := range requests {
		if r.IsWrite() && r.Namespace == namespace {
			m.Writes = append(m.Writes, r)
		}
	}
	return err
}

func (w *world) close(ctx context.Context) error {
	for _, o := range []*lab.Observer{w.pods, w.moves} {
		if o != nil {
			o.Close()
		}
	}
	if w.manager != nil {
		w.manager.Stop()
	}
	return w.Bed.Down(context.WithoutCancel(ctx))
}
