// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// loadNamespace is where the load is, but for the namespaces that it makes itself.
	loadNamespace = "load"
	// labelTo is what the load changes. Providers leave out labels with a domain.
	labelTo = "faults-to"

	image = "hanse.dev/test/faults:"
	// mirrored is what providers call the same image: they rewrite it.
	mirrored = "hanse.dev/mirror/faults:"
)

// A user makes, changes and deletes objects.
type user struct {
	*cluster
	witness string // the address at which containers find the witness
}

// perform does what the load says, one thing after the other, each as often as it takes.
func (u *user) perform(ctx context.Context, load []operation) error {
	start := time.Now()
	for _, o := range load {
		if err := wait(ctx, time.Until(start.Add(o.at))); err != nil {
			return err
		}
		if err := again(ctx, func(ctx context.Context) error { return u.do(ctx, o) }); err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (u *user) do(ctx context.Context, o operation) error {
	switch o.verb {
	case createPod, createShort, createJob, createDeployment, createSet:
		return u.create(ctx, u.object(loadNamespace, o.on))
	case createNamespace:
		if err := u.offload(ctx, o.on.name); err != nil {
			return err
		}
		return u.create(ctx, u.object(o.on.name, object{made: createSet, name: o.on.name, replicas: 1, deaf: o.on.deaf}))
	case scale:
		return u.patch(ctx, kindOf(o.on), o.on.name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, o.on.replicas))
	case relabel:
		return u.patch(ctx, &corev1.Pod{}, o.on.name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, labelTo, o.to))
	case changeImage:
		return u.patch(ctx, &corev1.Pod{}, o.on.name, fmt.Sprintf(`{"spec":{"containers":[{"name":"main","image":%q}]}}`, image+o.to))
	case movePod, moveLone:
		return u.move(ctx, o)
	default:
		return u.delete(ctx, o)
	}
}

// offload makes a namespace whose pods run at providers.
func (u *user) offload(ctx context.Context, name string) error {
	if err := u.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}
	return u.create(ctx, &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.NamespaceOffloadingName},
		Spec:       v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote},
	})
}

func (u *user) create(ctx context.Context, o client.Object) error {
	return client.IgnoreAlreadyExists(u.Create(ctx, o))
}

// patch changes an object of the load. That it is gone is for the checker to find.
func (u *user) patch(ctx context.Context, o client.Object, name, patch string) error {
	o.SetNamespace(loadNamespace)
	o.SetName(name)
	return client.IgnoreNotFound(u.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

// move moves the pod, or one of the Deployments' pods, that are Ready at a provider to the other one. Which one, the time decides.
func (u *user) move(ctx context.Context, o operation) error {
	pods := &corev1.PodList{}
	if err := u.List(ctx, pods, client.InNamespace(loadNamespace)); err != nil {
		return err
	}
	from := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		owner := metav1.GetControllerOf(&pod)
		isMeant := pod.Name == o.on.name || o.verb == movePod && owner != nil && owner.Kind == "ReplicaSet"
		return !isMeant || pod.DeletionTimestamp != nil || !podReady(&pod) || homePodOf(&pod).provider == ""
	})
	deadline, err := time.ParseDuration(o.to)
	if err != nil || len(from) == 0 {
		return err
	}
	pod := from[int(o.at.Milliseconds())%len(from)]
	to := providers[0]
	if homePodOf(&pod).provider == to {
		to = providers[1]
	}
	method := v1alpha1.MoveMethod("")
	if o.verb == moveLone {
		method = v1alpha1.MoveDeleteFirst
	}
	return u.create(ctx, &v1alpha1.PodMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: loadNamespace, Name: fmt.Sprintf("move-%d", o.at.Milliseconds())},
		Spec: v1alpha1.PodMoveSpec{
			Pod:         v1alpha1.MovedPod{Name: pod.Name, UID: pod.UID},
			Destination: v1alpha1.MoveDestination{Peer: to}, Deadline: &metav1.Duration{Duration: deadline},
			Method: method,
		},
	})
}

// delete deletes an object, once with each grace.
func (u *user) delete(ctx context.Context, o operation) error {
	for i, grace := range o.grace {
		if i > 0 {
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
		}
		options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
		if _, isPod := kindOf(o.on).(*corev1.Pod); isPod && grace >= 0 {
			options = append(options, client.GracePeriodSeconds(grace))
		}
		target := kindOf(o.on)
		target.SetName(o.on.name)
		if o.verb != deleteNamespace {
			target.SetNamespace(loadNamespace)
		}
		// A namespace that is ending already answers with a conflict.
		if err := u.Delete(ctx, target, options...); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// kindOf returns an empty object of the kind.
func kindOf(o object) client.Object {
	switch o.made {
	case createDeployment:
		return &appsv1.Deployment{}
	case createSet:
		return &appsv1.StatefulSet{}
	case createJob:
		return &batchv1.Job{}
	case createNamespace:
		return &corev1.Namespace{}
	default:
		return &corev1.Pod{}
	}
}

func (u *user) object(ns string, o object) client.Object {
	named := metav1.ObjectMeta{Namespace: ns, Name: o.name}
	labels := map[string]string{"app": o.name}
	switch o.made {
	case createDeployment:
		return &appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(o.replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: u.spec(o, -1, corev1.RestartPolicyAlways)},
		}}
	case createSet:
		return &appsv1.StatefulSet{ObjectMeta: named, Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(o.replicas), PodManagementPolicy: appsv1.ParallelPodManagement, ServiceName: o.name,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: u.spec(o, -1, corev1.RestartPolicyAlways)},
		}}
	case createJob:
		return &batchv1.Job{ObjectMeta: named, Spec: batchv1.JobSpec{
			Completions: ptr.To(o.replicas), Parallelism: ptr.To(o.replicas),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: u.spec(o, o.seconds, corev1.RestartPolicyNever)},
		}}
	case createShort:
		named.Labels = labels
		return &corev1.Pod{ObjectMeta: named, Spec: u.spec(o, o.seconds, corev1.RestartPolicyNever)}
	default:
		named.Labels = labels
		return &corev1.Pod{ObjectMeta: named, Spec: u.spec(o, -1, corev1.RestartPolicyAlways)}
	}
}

// spec is that of a pod with one container, which tells the witness that it lives.
func (u *user) spec(o object, seconds int, restart corev1.RestartPolicy) corev1.PodSpec {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](3),
		RestartPolicy:                 restart,
		Containers: []corev1.Container{{
			Name: "main", Image: image + imageTags[0], ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"/bin/busybox", "sh", "-c", script(u.witness, o.deaf, seconds)},
			Env:     []corev1.EnvVar{{Name: "HOME_UID", ValueFrom: field("metadata.uid")}, {Name: "HOME_NAME", ValueFrom: field("metadata.name")}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("8Mi"),
			}},
		}},
	}
}
