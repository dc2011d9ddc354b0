// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/move"
)

// revision is the annotation by which a Deployment and its ReplicaSets say which of these is the newest.
const revision = "deployment.kubernetes.io/revision"

// owner returns nil if it is gone or going. Of kinds that are not Kubernetes' own nothing is known but the pods.
func (m *Mover) owner(ctx context.Context, s *seen, named *metav1.OwnerReference) (*move.Owner, error) {
	key := client.ObjectKey{Namespace: s.Move.Namespace, Name: named.Name}
	owner := &move.Owner{MoveOwner: *noted(named), Selector: labels.Everything()}
	switch named.APIVersion + " " + named.Kind {
	case "apps/v1 ReplicaSet":
		return m.replicaSet(ctx, key, owner)
	case "apps/v1 StatefulSet":
		return m.statefulSet(ctx, s, owner)
	case "batch/v1 Job":
		return m.job(ctx, s, owner)
	case "v1 ReplicationController":
		rc, err := local.Find(ctx, m.Live, key, &corev1.ReplicationController{})
		if err != nil || rc == nil || isAnother(rc, owner) || rc.Spec.Template == nil {
			return nil, err
		}
		owner.Selector = labels.SelectorFromSet(rc.Spec.Selector)
		owner.Template, owner.Replicas, owner.MinReadySeconds = rc.Spec.Template, ptr.Deref(rc.Spec.Replicas, 1), rc.Spec.MinReadySeconds
		owner.Busy = scaledToNothing(owner)
		return owner, nil
	default:
		return owner, nil
	}
}

func noted(of *metav1.OwnerReference) *v1alpha1.MoveOwner {
	return &v1alpha1.MoveOwner{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Name, UID: of.UID}
}

// isAnother says whether the object has only the name of the owner, or is being deleted.
func isAnother(found metav1.Object, owner *move.Owner) bool {
	return found.GetUID() != owner.UID || found.GetDeletionTimestamp() != nil
}

func (m *Mover) replicaSet(ctx context.Context, key client.ObjectKey, owner *move.Owner) (*move.Owner, error) {
	set, err := local.Find(ctx, m.Live, key, &appsv1.ReplicaSet{})
	if err != nil || set == nil || isAnother(set, owner) {
		return nil, err
	}
	if owner.Selector, err = metav1.LabelSelectorAsSelector(set.Spec.Selector); err != nil {
		return nil, fmt.Errorf("read the selector of ReplicaSet %s: %w", set.Name, err)
	}
	owner.Template, owner.Replicas, owner.MinReadySeconds = &set.Spec.Template, ptr.Deref(set.Spec.Replicas, 1), set.Spec.MinReadySeconds
	return owner, m.observeDeployment(ctx, set, owner)
}

func scaledToNothing(owner *move.Owner) string {
	if owner.Replicas > 0 {
		return ""
	}
	return fmt.Sprintf("%s %s is scaled to nothing", owner.Kind, owner.Name)
}

// observeDeployment sees whether the pods of the set are about to be replaced.
func (m *Mover) observeDeployment(ctx context.Context, set *appsv1.ReplicaSet, owner *move.Owner) error {
	owner.Busy = scaledToNothing(owner)
	of := metav1.GetControllerOf(set)
	if of == nil || of.Kind != "Deployment" {
		return nil
	}
	deployment, err := local.Find(ctx, m.Live, client.ObjectKey{Namespace: set.Namespace, Name: of.Name}, &appsv1.Deployment{})
	switch {
	case err != nil:
		return err
	case deployment == nil || deployment.UID != of.UID || deployment.DeletionTimestamp != nil:
		owner.Busy = fmt.Sprintf("Deployment %s is being deleted", of.Name)
	case deployment.Annotations[revision] != set.Annotations[revision]:
		owner.Busy = fmt.Sprintf("Deployment %s has a newer revision, and replaces the pods of ReplicaSet %s itself", of.Name, set.Name)
	}
	return nil
}

// statefulSet sees whether the pod in the place of the original would be another one than that was.
func (m *Mover) statefulSet(ctx context.Context, s *seen, owner *move.Owner) (*move.Owner, error) {
	set, err := local.Find(ctx, m.Live, client.ObjectKey{Namespace: s.Move.Namespace, Name: owner.Name}, &appsv1.StatefulSet{})
	if err != nil || set == nil || isAnother(set, owner) {
		return nil, err
	}
	owner.Busy = move.BusyStatefulSet(set, s.Move.Spec.Pod.Name, s.Original)
	return owner, nil
}

// job sees whether another pod is made in the place of one that is evicted.
func (m *Mover) job(ctx context.Context, s *seen, owner *move.Owner) (*move.Owner, error) {
	job, err := local.Find(ctx, m.Live, client.ObjectKey{Namespace: s.Move.Namespace, Name: owner.Name}, &batchv1.Job{})
	if err != nil || job == nil || isAnother(job, owner) {
		return nil, err
	}
	owner.Busy, owner.Unforgiving = move.BusyJob(job), move.UnforgivingJob(job, s.Original)
	return owner, nil
}
