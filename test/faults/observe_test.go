// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// observe looks at what there is now.
func observe(ctx context.Context, clusters map[string]*cluster, w *witness, p plan) (state, error) {
	s := state{}
	home := clusters[consumer]
	offloadings := &v1alpha1.NamespaceOffloadingList{}
	if err := home.List(ctx, offloadings); err != nil {
		return s, err
	}
	for _, o := range offloadings.Items {
		s.namespaces = append(s.namespaces, o.Namespace)
	}
	for _, name := range providers {
		if err := s.observeProvider(ctx, clusters[name]); err != nil {
			return s, err
		}
	}
	pods := &corev1.PodList{}
	if err := home.List(ctx, pods); err != nil {
		return s, err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; ofLoad(pod) {
			s.home = append(s.home, homePodOf(pod))
		}
	}
	var err error
	if s.moves, err = podMoves(ctx, home); err != nil {
		return s, err
	}
	s.unmet, err = unmet(ctx, clusters, p)
	s.runs = w.seen()
	return s, err
}

func podMoves(ctx context.Context, home *cluster) ([]podMove, error) {
	list := &v1alpha1.PodMoveList{}
	err := home.List(ctx, list)
	var moves []podMove
	for _, m := range list.Items {
		move := podMove{name: m.Namespace + "/" + m.Name, phase: m.Status.Phase}
		if complete := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionComplete); complete != nil {
			move.reason = complete.Reason
		}
		moves = append(moves, move)
	}
	return moves, err
}

func ofLoad(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "HOME_UID" })
	})
}

func homePodOf(pod *corev1.Pod) homePod {
	p := homePod{
		uid: string(pod.UID), name: pod.Namespace + "/" + pod.Name, phase: pod.Status.Phase,
		leaving: pod.DeletionTimestamp != nil, ready: podReady(pod),
	}
	for _, name := range providers {
		if pod.Spec.NodeName == v1alpha1.VirtualNodeName(name) {
			p.provider = name
		}
	}
	return p
}

// stateOf says how the pod is, and why.
func stateOf(pod *corev1.Pod) string {
	state := fmt.Sprintf("%s: %s %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			state += fmt.Sprintf("; %s: %s %s", c.Type, c.Reason, c.Message)
		}
	}
	return state
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (s *state) observeProvider(ctx context.Context, c *cluster) error {
	shadows := &v1alpha1.ShadowPodList{}
	if err := c.List(ctx, shadows); err != nil {
		return err
	}
	for _, shadow := range shadows.Items {
		s.records = append(s.records, record{c.Name, shadow.Namespace + "/" + shadow.Name, string(shadow.Spec.HomeUID)})
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.HasLabels{v1alpha1.LabelHomeUID}); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		s.remotes = append(s.remotes, remotePod{c.Name, pod.Namespace + "/" + pod.Name, pod.Labels[v1alpha1.LabelHomeUID]})
	}
	twins := &corev1.NamespaceList{}
	if err := c.List(ctx, twins, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin}); err != nil {
		return err
	}
	for _, ns := range twins.Items {
		s.twins = append(s.twins, twin{c.Name, ns.Name, ns.Annotations[v1alpha1.AnnotationHomeNamespace]})
	}
	return nil
}

// unmet says what of the load is not as its users left it.
func unmet(ctx context.Context, clusters map[string]*cluster, p plan) ([]string, error) {
	var missing []string
	left := remaining(p.load)
	for _, name := range sortedKeys(left) {
		why, err := unmetObject(ctx, clusters, left[name], p)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err != nil {
			why = err.Error()
		}
		if why != "" {
			missing = append(missing, name+": "+why)
		}
	}
	return missing, nil
}

func unmetObject(ctx context.Context, clusters map[string]*cluster, o object, p plan) (string, error) {
	key := client.ObjectKey{Namespace: loadNamespace, Name: o.name}
	home := clusters[consumer]
	switch o.made {
	case createDeployment:
		return unmetDeployment(ctx, home, key, o.replicas)
	case createSet:
		set := &appsv1.StatefulSet{}
		err := home.Get(ctx, key, set)
		return unmetSet(set, o.replicas), err
	case createJob:
		job := &batchv1.Job{}
		err := home.Get(ctx, key, job)
		if job.Status.Succeeded != o.replicas {
			return fmt.Sprintf("%d of %d pods succeeded, %d failed", job.Status.Succeeded, o.replicas, job.Status.Failed), err
		}
		return "", err
	case createShort:
		pod := &corev1.Pod{}
		err := home.Get(ctx, key, pod)
		if pod.Status.Phase != corev1.PodSucceeded && !endedWithTwin(pod, p) {
			return "it is " + stateOf(pod), err
		}
		return "", err
	case createNamespace:
		key.Namespace = o.name
		set := &appsv1.StatefulSet{}
		err := home.Get(ctx, key, set)
		return unmetSet(set, 1), err
	default: // a pod
		return unmetPod(ctx, clusters, key, p)
	}
}

// unmetDeployment counts the pods with the Deployment's label too: a copy that was left behind by a move belongs to nobody.
func unmetDeployment(ctx context.Context, home *cluster, key client.ObjectKey, replicas int32) (string, error) {
	d, pods := &appsv1.Deployment{}, &corev1.PodList{}
	err := errors.Join(home.Get(ctx, key, d), home.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingLabels{"app": key.Name}))
	if d.Status.ReadyReplicas != replicas || d.Status.Replicas != replicas || len(pods.Items) != int(replicas) {
		return fmt.Sprintf("%d of %d pods are Ready, %d have its label, want %d", d.Status.ReadyReplicas, d.Status.Replicas, len(pods.Items), replicas), err
	}
	return "", err
}

func unmetPod(ctx context.Context, clusters map[string]*cluster, key client.ObjectKey, p plan) (string, error) {
	pod := &corev1.Pod{}
	if err := clusters[consumer].Get(ctx, key, pod); err != nil {
		return "", err
	}
	if endedWithTwin(pod, p) {
		return "", nil
	}
	if pod.Status.Phase != corev1.PodRunning {
		return "it is " + stateOf(pod), nil
	}
	return notCarried(ctx, clusters, pod, p.load)
}

// endedWithTwin says whether the pod failed because its provider deleted the namespace that it ran in: a pod that belongs to
// nobody is not made anew.
func endedWithTwin(pod *corev1.Pod, p plan) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == v1alpha1.ReasonNamespaceTerminating &&
		p.deletesTwinsAt(homePodOf(pod).provider)
}

func unmetSet(set *appsv1.StatefulSet, replicas int32) string {
	if set.Status.ReadyReplicas == replicas && set.Status.Replicas == replicas {
		return ""
	}
	return fmt.Sprintf("%d of %d pods are Ready, want %d", set.Status.ReadyReplicas, set.Status.Replicas, replicas)
}

// notCarried says which change of the pod has not arrived where it runs.
func notCarried(ctx context.Context, clusters map[string]*cluster, home *corev1.Pod, load []operation) (string, error) {
	provider := homePodOf(home).provider
	if provider == "" {
		return "", nil
	}
	remotes := &corev1.PodList{}
	err := clusters[provider].List(ctx, remotes, client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)})
	if err != nil || len(remotes.Items) != 1 {
		return "", err
	}
	remote := remotes.Items[0]
	for _, o := range slices.Backward(load) {
		switch {
		case o.on.name != home.Name:
		case o.verb == relabel && remote.Labels[labelTo] != home.Labels[labelTo]:
			return fmt.Sprintf("label %q at home, %q there", home.Labels[labelTo], remote.Labels[labelTo]), nil
		case o.verb == changeImage && tagOf(remote.Spec.Containers[0].Image) != tagOf(home.Spec.Containers[0].Image):
			return fmt.Sprintf("image %s at home, %s there", home.Spec.Containers[0].Image, remote.Spec.Containers[0].Image), nil
		}
	}
	return "", nil
}
