// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// keepLoneMove is for how many seconds a PodMove of ours is kept when it is over: what has failed is tried again then.
const keepLoneMove = 600

// errMoves is for a pod that is on its way.
var errMoves = errors.New("its PodMove is under way")

// isLone reports whether the pod is to run until somebody deletes it, and nobody makes another when it goes. One that ends by itself is
// none: made again, it would do its work twice.
func isLone(pod *corev1.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
}

// leaves is the PodMove by which a lone pod leaves its node. Its name depends on the pod alone, so that there is one. Where the pod does
// not start it stays nevertheless, since its node takes it no more.
func leaves(pod *corev1.Pod) *v1alpha1.PodMove {
	return &v1alpha1.PodMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "leaves-" + string(pod.UID)},
		Spec: v1alpha1.PodMoveSpec{
			Pod: v1alpha1.MovedPod{Name: pod.Name, UID: pod.UID}, Destination: v1alpha1.MoveDestination{Elsewhere: v1alpha1.ElsewhereAnyNode},
			Method: v1alpha1.MoveDeleteFirst, OnFailure: v1alpha1.OnFailureLeave, TTLSecondsAfterFinished: ptr.To[int32](keepLoneMove),
		},
	}
}

// onItsWay names the pod among what is left for a while.
func onItsWay(pod *corev1.Pod) string { return "moves/" + string(pod.UID) }

// moveLone has the pod made again elsewhere. If that cannot be done, one that must go is evicted, and one that is only to go stays.
func (e *evictor) moveLone(ctx context.Context, one leaver) error {
	wanted := leaves(one.pod)
	found, err := local.Find(ctx, e.live, client.ObjectKeyFromObject(wanted), &v1alpha1.PodMove{})
	if err != nil {
		return err
	}
	if found == nil {
		err = client.IgnoreAlreadyExists(e.client.Create(ctx, wanted))
	}
	switch {
	case err == nil && (found == nil || !found.Status.Phase.IsOver()):
		return errMoves
	case found != nil && found.Status.Phase == v1alpha1.MoveSucceeded:
		return nil
	case found != nil:
		err = fmt.Errorf("its PodMove %s has failed", found.Name)
		if why := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionComplete); why != nil {
			err = fmt.Errorf("%w: %s", err, why.Message)
		}
	case !apierrors.IsForbidden(err):
		return err
	}
	if one.reason.onPod {
		return err
	}
	return e.evict(ctx, one.pod)
}
