// SPDX-License-Identifier: Apache-2.0

package agentless

import (
	"context"
	"errors"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
)

// A writer changes what there is at a peer.
type writer struct {
	client client.Client
	id     string
}

// change brings what is new in the ShadowPod to the pod that runs, then to those that would come after it.
func (w writer) change(ctx context.Context, seen observed, shadow *v1alpha1.ShadowPod) error {
	owner := seen.owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
	if shadow.Spec.Pod != "" {
		template, err := templateOf(w.id, shadow)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		if err := w.changePod(ctx, seen, template); err != nil {
			return err
		}
		if set, isSet := owner.(*appsv1.ReplicaSet); isSet {
			set.Spec.Template = template // that of a Job cannot be changed
		}
	}
	annotations := maps.Clone(owner.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, annotationsOf(shadow))
	owner.SetAnnotations(annotations)
	if err := w.patch(ctx, seen.owner, owner); err != nil {
		return err
	}
	return w.endPods(ctx, observed{owner: owner, pods: seen.pods})
}

// changePod brings the change to the pod that runs, where Kubernetes allows it.
func (w writer) changePod(ctx context.Context, seen observed, template corev1.PodTemplateSpec) error {
	pod := seen.pod()
	if pod == nil || !pod.DeletionTimestamp.IsZero() || offload.Terminal(pod.Status.Phase) {
		return nil
	}
	wanted := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	before := askedBefore(seen, pod)
	unsized := w.resizePod(ctx, pod, before, wanted)
	if unsized != nil {
		asked := offload.NotedAsked(&wanted.ObjectMeta).WithAmountsOf(before)
		offload.NoteAsked(&wanted.ObjectMeta, asked)
	}
	return errors.Join(unsized, w.patch(ctx, pod, offload.Changed(pod, before, wanted)))
}

// askedBefore returns what was asked for of the pod. One that an earlier version made does not say, but its owner does.
func askedBefore(seen observed, pod *corev1.Pod) offload.Asked {
	if asked := offload.NotedAsked(&pod.ObjectMeta); asked != nil {
		return asked
	}
	template := templateOfOwner(seen.owner)
	return offload.AskedOf(&template.ObjectMeta, &corev1.PodSpec{})
}

func (w writer) resizePod(ctx context.Context, pod *corev1.Pod, before offload.Asked, wanted *corev1.Pod) error {
	resized := offload.Resized(pod, before, wanted)
	if equality.Semantic.DeepEqual(pod.Spec, resized.Spec) {
		return nil
	}
	err := w.client.SubResource("resize").Patch(ctx, resized, client.StrategicMergeFrom(pod))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("resize pod %s: %w", pod.Name, err)
	}
	return nil
}

// patch makes before what after is, if they differ.
func (w writer) patch(ctx context.Context, before, after client.Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	target := after.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
	if err := w.client.Patch(ctx, target, client.StrategicMergeFrom(before)); err != nil {
		return fmt.Errorf("change %T %s: %w", before, before.GetName(), err)
	}
	return nil
}

// end deletes the ReplicaSet or Job such that it stays until its pods are gone, and makes no more of them.
func (w writer) end(ctx context.Context, seen observed) error {
	uid := seen.owner.GetUID()
	err := w.client.Delete(ctx, seen.owner, client.PropagationPolicy(metav1.DeletePropagationForeground),
		client.Preconditions{UID: &uid})
	if err != nil {
		return err
	}
	ending := seen.owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
	ending.SetDeletionTimestamp(&metav1.Time{Time: ending.GetCreationTimestamp().Time})
	return w.endPods(ctx, observed{owner: ending, pods: seen.pods})
}

// endPods gives the pods of what is being deleted the grace that home gives them. Without one, the peer's own garbage
// collector deletes them with theirs, and so it does if we are killed before we do.
func (w writer) endPods(ctx context.Context, seen observed) error {
	grace := graceOf(seen.owner)
	if !seen.ending() || grace == nil {
		return nil
	}
	var errs []error
	for _, pod := range seen.pods {
		if given := pod.DeletionGracePeriodSeconds; !pod.DeletionTimestamp.IsZero() && given != nil && *given <= *grace {
			continue
		}
		err := w.client.Delete(ctx, pod, client.GracePeriodSeconds(*grace), client.Preconditions{UID: &pod.UID})
		if local.IgnoreStale(err) != nil {
			errs = append(errs, fmt.Errorf("delete pod %s: %w", pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// keepRecord does what nobody asks for: it keeps the record of pods that were made again, and the grace of those that end.
func (w writer) keepRecord(ctx context.Context, seen observed) error {
	if seen.ending() {
		return w.endPods(ctx, seen)
	}
	known, now := recordOf(seen.owner.GetAnnotations()), seen.record()
	if known.Pod == now.Pod {
		return nil
	}
	text, err := now.text()
	if err != nil {
		return fmt.Errorf("encode the record of earlier pods: %w", err)
	}
	owner := seen.owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
	annotations := maps.Clone(owner.GetAnnotations())
	annotations[v1alpha1.AnnotationRecord] = text
	owner.SetAnnotations(annotations)
	return client.IgnoreNotFound(w.patch(ctx, seen.owner, owner))
}

// templateOfOwner returns the template of a ReplicaSet or Job.
func templateOfOwner(owner client.Object) corev1.PodTemplateSpec {
	switch owner := owner.(type) {
	case *appsv1.ReplicaSet:
		return owner.Spec.Template
	case *batchv1.Job:
		return owner.Spec.Template
	default:
		return corev1.PodTemplateSpec{}
	}
}
