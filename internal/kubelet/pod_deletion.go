// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/unread"
)

// end asks the peer to end the pod, with the grace that home gives it. A shorter grace is carried later too.
func (c *podController) end(ctx context.Context, seen podFacts, link *peers.Link) error {
	if len(seen.home.Finalizers) > 0 {
		// Somebody, such as the Job controller, wants to know how the pod ended.
		came, err := c.bringHome(ctx, &seen)
		if err != nil || came.written && isHeldThere(seen.shadow) {
			return err // what was written brings us back
		}
	}
	if isHeldThere(seen.shadow) {
		return c.letGoOfHeld(ctx, seen)
	}
	if err := tellOfEnd(ctx, seen, link); err != nil {
		return err
	}
	c.ending.Store(requestFor(seen.home), seen.home.UID)
	if holdsEnd(seen.shadow, seen.twinEnds()) && (terminal(seen.home) || len(seen.home.Finalizers) == 0) {
		return sayHeard(ctx, seen.shadow, link)
	}
	return c.deleteShadow(ctx, seen.shadow, link)
}

// isHeldThere says whether the pod has ended at the peer, and nothing but finalizers of others keeps its record there.
func isHeldThere(shadow *v1alpha1.ShadowPod) bool {
	return !shadow.DeletionTimestamp.IsZero() && len(shadow.Finalizers) > 0 &&
		!slices.Contains(shadow.Finalizers, v1alpha1.FinalizerShadowPod)
}

// maxFinalizers is how many finalizers of a record are named to the author of a pod.
const maxFinalizers = 3

func finalizersOf(shadow *v1alpha1.ShadowPod) string {
	named := slices.Sorted(slices.Values(shadow.Finalizers))
	return bounded(strings.Join(named[:min(len(named), maxFinalizers)], ", "))
}

// letGoOfHeld has home forget the pod if that was deleted by force, and else says what holds it. A pod without finalizers at
// home is forgotten by the API server itself when it is deleted by force.
func (c *podController) letGoOfHeld(ctx context.Context, seen podFacts) error {
	if ptr.Deref(seen.home.DeletionGracePeriodSeconds, 1) == 0 {
		return c.forget(ctx, seen.home)
	}
	status := *seen.home.Status.DeepCopy()
	news := showHint(&status, v1alpha1.PodReleased, &metav1.Condition{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHeldByProvider,
		Message: fmt.Sprintf("The pod has ended, and finalizers of others hold its record at peer %q: %s. Ask its administrator to "+
			"remove them, or delete the pod with --force --grace-period=0", seen.peer, finalizersOf(seen.shadow)),
	}, metav1.NewTime(c.clock.Now().Truncate(time.Second)))
	written, err := c.write(ctx, seen.home, status)
	if written {
		c.tell(seen.home, news)
	}
	return err
}

// tellOfEnd tells the peer, in one request, what it does not know of the end of the pod: its grace, and that somebody waits to
// know how it ends.
func tellOfEnd(ctx context.Context, seen podFacts, link *peers.Link) error {
	grace, asks := graceToCarry(seen.home, seen.shadow), asksForEnd(seen.home, seen.shadow)
	if grace == nil && !asks {
		return nil
	}
	err := patchShadow(ctx, link, seen.shadow, endOf(grace, asks))
	if asks && apierrors.IsForbidden(err) { // an older peer does not know what it is asked, which must not keep the pod
		if grace == nil {
			return nil
		}
		err = patchShadow(ctx, link, seen.shadow, endOf(grace, false))
	}
	if err != nil {
		return remoteGone("tell of the end to ShadowPod", err)
	}
	if grace != nil {
		fault.Point(fault.GraceTold)
	}
	return nil
}

// endOf changes a record so that its pod ends with that grace, if there is one, and its end is told to those who ask.
func endOf(grace *int64, asks bool) func(*v1alpha1.ShadowPod) {
	return func(shadow *v1alpha1.ShadowPod) {
		if grace != nil {
			shadow.Spec.DeletionGracePeriodSeconds = grace
		}
		if asks {
			metav1.SetMetaDataAnnotation(&shadow.ObjectMeta, v1alpha1.AnnotationReportEnd, "true")
		}
	}
}

// asksForEnd says whether somebody at home waits to know how the pod ends, and the peer does not know that yet.
func asksForEnd(home *corev1.Pod, shadow *v1alpha1.ShadowPod) bool {
	_, asked := shadow.Annotations[v1alpha1.AnnotationReportEnd]
	return !asked && len(home.Finalizers) > 0 && !terminal(home) && shadow.DeletionTimestamp.IsZero()
}

// holdsEnd says whether the peer keeps the record until we have heard how the pod ended, which it does for a while: we have
// asked for that, or the twin goes.
func holdsEnd(shadow *v1alpha1.ShadowPod, twinEnds bool) bool {
	asked := shadow.Annotations[v1alpha1.AnnotationReportEnd]
	return (asked == "true" || asked == "" && twinEnds) && !shadow.DeletionTimestamp.IsZero() &&
		offload.Terminal(shadow.Status.Phase)
}

// sayHeard tells the peer that home knows how the pod ended, or that nobody waits to know any more. A peer that refuses it
// waits no longer for that.
func sayHeard(ctx context.Context, shadow *v1alpha1.ShadowPod, link *peers.Link) error {
	err := patchShadow(ctx, link, shadow, heard)
	if apierrors.IsForbidden(err) {
		return nil
	}
	return remoteGone("tell that the end is known to ShadowPod", err)
}

func heard(shadow *v1alpha1.ShadowPod) {
	metav1.SetMetaDataAnnotation(&shadow.ObjectMeta, v1alpha1.AnnotationReportEnd, "false")
}

// patchShadow changes that very ShadowPod: the UID makes the peer refuse the change of another one of the name.
func patchShadow(
	ctx context.Context, link *peers.Link, shadow *v1alpha1.ShadowPod, change func(*v1alpha1.ShadowPod),
) error {
	before := &v1alpha1.ShadowPod{ObjectMeta: nameOf(shadow)}
	before.Annotations = shadow.Annotations
	after := before.DeepCopy()
	after.UID = shadow.UID
	change(after)
	return link.Client().Patch(unread.Answer(ctx), after, client.MergeFrom(before))
}

// graceToCarry returns the grace that the peer must be told, or nil if it would use the same.
func graceToCarry(home *corev1.Pod, shadow *v1alpha1.ShadowPod) *int64 {
	told := shadow.Spec.DeletionGracePeriodSeconds
	if told == nil {
		told = home.Spec.TerminationGracePeriodSeconds
	}
	if ptr.Equal(home.DeletionGracePeriodSeconds, told) {
		return nil
	}
	return home.DeletionGracePeriodSeconds
}

func (c *podController) deleteShadow(ctx context.Context, shadow *v1alpha1.ShadowPod, link *peers.Link) error {
	if !shadow.DeletionTimestamp.IsZero() {
		return nil
	}
	precondition := client.Preconditions{UID: &shadow.UID}
	if err := link.Client().Delete(ctx, &v1alpha1.ShadowPod{ObjectMeta: nameOf(shadow)}, precondition); err != nil {
		return remoteGone("delete ShadowPod", err)
	}
	fault.Point(fault.ShadowDeleted)
	return nil
}

// finish lets home forget a pod of which nothing is left at the peer.
func (c *podController) finish(ctx context.Context, seen podFacts, link *peers.Link) error {
	if link != nil && seen.twin != "" && !c.sawItGo(seen.home) {
		// The mirror may be behind what we ourselves created.
		key := client.ObjectKey{Namespace: seen.twin, Name: seen.home.Name}
		found := &v1alpha1.ShadowPod{}
		err := link.Client().Get(ctx, key, found)
		if err == nil && found.Spec.HomeUID == seen.home.UID {
			return errWaiting
		}
		if client.IgnoreNotFound(err) != nil {
			return &peerError{attempt: "read ShadowPod", err: err}
		}
	}
	return c.forget(ctx, seen.home)
}

// sawItGo says whether the mirror has shown the record since home deletes the pod, after which none is created. So the record
// is gone when the mirror shows none, and the peer need not be asked.
func (c *podController) sawItGo(home *corev1.Pod) bool {
	ended, ok := c.ending.Load(requestFor(home))
	return ok && ended == home.UID
}

// forget deletes the pod at home at once.
func (c *podController) forget(ctx context.Context, home *corev1.Pod) error {
	if len(home.Finalizers) > 0 && !terminal(home) {
		// The object stays for a while, and must not look as if its containers ran.
		failed := *home.Status.DeepCopy()
		failed.Phase = corev1.PodFailed
		if _, err := c.write(ctx, home, failed); err != nil {
			return err
		}
	}
	fault.Point(fault.BeforeForget)
	return c.delete(ctx, home, client.GracePeriodSeconds(0))
}

// delete deletes that very pod at home, unless it is gone by now.
func (c *podController) delete(ctx context.Context, home *corev1.Pod, options ...client.DeleteOption) error {
	options = append(options, client.Preconditions{UID: &home.UID})
	if err := c.client.Delete(ctx, &corev1.Pod{ObjectMeta: nameOf(home)}, options...); err != nil && !isGone(err) {
		return fmt.Errorf("delete Pod: %w", err)
	}
	return nil
}

// clearFor clears a record. No pod waits for that where home has none of the name, and a peer may invent as many such records
// as it likes, so few workers are at it.
func (c *podController) clearFor(ctx context.Context, req request, seen podFacts, link *peers.Link) error {
	if seen.home == nil {
		end, err := link.Aside()
		if err != nil {
			return err
		}
		defer end()
	}
	return c.clear(ctx, req, seen.shadow, link)
}

// clear ends a record that home does not want any more, at once: a home pod goes before its remote one only by force. Our cache
// is not asked, since it may be behind.
func (c *podController) clear(ctx context.Context, req request, shadow *v1alpha1.ShadowPod, link *peers.Link) error {
	ending, grace := !shadow.DeletionTimestamp.IsZero(), shadow.Spec.DeletionGracePeriodSeconds
	told := holdsEnd(shadow, link.TwinEnds(req.Namespace))
	if ending && ptr.Deref(grace, 0) == 0 && !told {
		return nil
	}
	pod := &corev1.Pod{}
	err := c.live.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: req.Name}, pod)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Pod: %w", err)
	}
	if err == nil && wanted(shadow, pod) {
		return nil
	}
	if told {
		return sayHeard(ctx, shadow, link)
	}
	if grace == nil || *grace != 0 {
		err := patchShadow(ctx, link, shadow, endOf(ptr.To[int64](0), false))
		if err != nil {
			return remoteGone("set grace of ShadowPod", err)
		}
	}
	if !ending {
		ctrl.LoggerFrom(ctx).Info("Ending remote pod whose home pod is gone or has ended", "homeUID", shadow.Spec.HomeUID)
	}
	return c.deleteShadow(ctx, shadow, link)
}

// nameOf returns as much of an object as names it in a request.
func nameOf(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// isGone says whether a request met no object of the name any more, or another one, of which an event on its way tells.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// remoteGone passes over a record that is gone, or another one, by now: the mirror will say so.
func remoteGone(attempt string, err error) error {
	if err == nil || isGone(err) {
		return nil
	}
	return &peerError{attempt: attempt, err: err}
}
