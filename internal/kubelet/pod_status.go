// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/trace"
	"github.com/hanse-dev/hanse/internal/unread"
)

// told is what came of a look at the record of a pod.
type told struct {
	verdict judgement
	again   time.Duration // when to look again
	written bool          // it was news
}

// bringHome writes what the peer tells of the pod into its status, if that is news.
func (c *podController) bringHome(ctx context.Context, seen *podFacts) (told, error) {
	home, shadow := seen.home, seen.shadow
	if terminal(home) || shadow.Status.Pod == nil && len(shadow.Status.Conditions) == 0 && !isHeld(home) {
		return told{}, nil
	}
	status, err := c.inbound(ctx, home, shadow)
	if err != nil && !errors.Is(err, offload.ErrUnreadable) {
		return told{}, err
	}
	began := c.clock.Now()
	now := metav1.NewTime(began.Truncate(time.Second))
	showMissingToken(&status, seen, now)
	showUnreached(&status, seen, now)
	news := append(showHints(&status, shadow, err, now), showToken(&status, seen, now)...)
	verdict, again, err := c.holdOrFail(ctx, home, shadow, &status)
	if err != nil {
		return told{}, err
	}
	showPlacement(&status, home)
	written, err := c.write(ctx, home, status)
	if err != nil {
		return told{}, err
	}
	if written && shadow.Status.Recreations == 0 {
		c.traceStatus(ctx, home, &status, began)
	}
	c.tell(home, news)
	return told{verdict: verdict, again: again, written: written}, nil
}

// inbound returns the status of the home pod as the peer tells it, also with offload.ErrUnreadable.
func (c *podController) inbound(
	ctx context.Context, home *corev1.Pod, shadow *v1alpha1.ShadowPod,
) (status corev1.PodStatus, err error) {
	addresses, connected, err := c.addressMap(ctx, home)
	if err != nil {
		return status, err
	}
	status, err = offload.Inbound(home, shadow, addresses, c.clock.Now())
	offload.ShowFamilies(&status, c.podIPs)
	if err != nil && !errors.Is(err, offload.ErrUnreadable) {
		return status, reconcile.TerminalError(fmt.Errorf("read status of ShadowPod: %w", err))
	}
	if (shadow.Status.Pod == nil || err != nil) && isHeld(home) { // the peer has it, so it is not held any more
		status.Reason, status.Message, status.ContainerStatuses = "", "", nil
	}
	if connected && addresses == nil {
		// Nobody knows what its address is now, which is no reason to take it off a pod that runs.
		status.PodIP, status.PodIPs = home.Status.PodIP, home.Status.PodIPs
	}
	return status, err
}

// showUnreached has a pod not be ready while the tunnel to its provider does not work: what asks for it from here would wait in vain. It
// keeps its address.
func showUnreached(status *corev1.PodStatus, seen *podFacts, now metav1.Time) {
	ready := offload.PodCondition(status, corev1.PodReady)
	if ready == nil || ready.Status != corev1.ConditionTrue || seen.to.Connected() || !seen.to.HasNetwork() {
		return
	}
	if was := offload.PodCondition(&seen.home.Status, corev1.PodReady); was != nil && was.Status == corev1.ConditionFalse {
		now = was.LastTransitionTime
	}
	ready.Status, ready.Reason, ready.LastTransitionTime = corev1.ConditionFalse, v1alpha1.ReasonTunnelDown, now
	ready.Message = "This cluster does not reach the pod, since the tunnel to its provider does not work: see the condition Connected of the Peer"
}

// tell tells in events what is news.
func (c *podController) tell(home *corev1.Pod, hints []corev1.PodCondition) {
	for _, hint := range hints {
		c.events.Eventf(home, nil, corev1.EventTypeWarning, hint.Reason, "Offload", "%s", hint.Message)
	}
}

// giveUp fails a pod that ended because its peer deleted the twin.
func (c *podController) giveUp(ctx context.Context, home *corev1.Pod) error {
	status := *home.Status.DeepCopy()
	offload.GiveUp(&status, v1alpha1.ReasonNamespaceTerminating,
		"The provider deletes the namespace in which the pod ran, and has ended it", c.clock.Now())
	_, err := c.write(ctx, home, status)
	return err
}

// hold says in the pod's status and in an event why it is not offloaded. It says so once.
func (c *podController) hold(ctx context.Context, home *corev1.Pod, why string) error {
	status := heldStatus(home, why)
	if equality.Semantic.DeepEqual(home.Status, c.placed(status)) {
		return nil
	}
	if _, err := c.write(ctx, home, status); err != nil {
		return err
	}
	c.events.Eventf(home, nil, corev1.EventTypeWarning, v1alpha1.ReasonOffloadingBackOff, "Offload",
		"The pod is not offloaded: %s", why)
	return nil
}

// isHeld says whether the pod says that it cannot be offloaded.
func isHeld(home *corev1.Pod) bool { return home.Status.Reason == v1alpha1.ReasonOffloadingBackOff }

// heldStatus returns the status of a pod that cannot be offloaded.
func heldStatus(home *corev1.Pod, why string) corev1.PodStatus {
	status := *home.Status.DeepCopy()
	status.Phase = corev1.PodPending
	status.Reason = v1alpha1.ReasonOffloadingBackOff
	status.Message = "The pod is not offloaded: " + why
	status.ContainerStatuses = waiting(home, v1alpha1.ReasonOffloadingBackOff, why)
	return status
}

// waiting returns the statuses of the containers of a pod that cannot start.
func waiting(home *corev1.Pod, reason, message string) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for i := range home.Spec.Containers {
		statuses = append(statuses, corev1.ContainerStatus{
			Name:  home.Spec.Containers[i].Name,
			Image: home.Spec.Containers[i].Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		})
	}
	return statuses
}

// placed sets the addresses of the pod's host, unless the pod has them: an address that the virtual node had before is
// worth no write of its own.
func (c *podController) placed(status corev1.PodStatus) corev1.PodStatus {
	if status.HostIP == "" {
		status.HostIP = c.nodeIP
		status.HostIPs = []corev1.HostIP{{IP: c.nodeIP}}
	}
	return status
}

// write patches the status of a home pod, if it differs from what our cache shows, and says whether it wrote.
func (c *podController) write(ctx context.Context, home *corev1.Pod, status corev1.PodStatus) (bool, error) {
	changed := c.placed(status)
	if equality.Semantic.DeepEqual(home.Status, changed) {
		return false, nil
	}
	if delay := c.links.Pace(peerOf(home.Spec.NodeName), home.UID); delay > 0 {
		return false, &tooSoonError{after: delay}
	}
	after, patch := statusPatch(home, changed)
	fault.Point(fault.BeforeHomeStatus)
	err := c.client.Status().Patch(unread.Answer(ctx), after, patch)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write status of Pod: %w", err)
	}
	fault.Point(fault.HomeStatusWritten)
	statusesWritten.Inc()
	return true, nil
}

// statusPatch returns what changes the status of that very pod: the UID makes the API server refuse it for another one of the
// name. Lists are merged by key, so conditions that somebody else set meanwhile stay.
func statusPatch(home *corev1.Pod, changed corev1.PodStatus) (*corev1.Pod, client.Patch) {
	before := &corev1.Pod{ObjectMeta: nameOf(home), Status: home.Status}
	after := before.DeepCopy()
	after.UID, after.Status = home.UID, changed
	return after, client.StrategicMergeFrom(before)
}

// hints say which condition of a ShadowPod, where it is False, is shown as which of the home pod: they say what a provider
// does not do for it, and are there only while they are False. Their times are our own: providers' clocks may be wrong.
var hints = []struct {
	theirs string
	ours   corev1.PodConditionType
}{
	{v1alpha1.ConditionScheduled, v1alpha1.PodPlaced},
	{v1alpha1.ConditionUpdated, v1alpha1.PodUpdated},
	{v1alpha1.ConditionMetadata, v1alpha1.PodMetadata},
	{v1alpha1.ConditionDebug, v1alpha1.PodDebug},
}

// showHints sets those conditions in the status of the home pod, and the one that says why the status cannot be read if it
// cannot. It returns the ones that are news.
func showHints(status *corev1.PodStatus, shadow *v1alpha1.ShadowPod, unreadable error, now metav1.Time) []corev1.PodCondition {
	var news []corev1.PodCondition
	for _, hint := range hints {
		news = append(news, showHint(status, hint.ours, hinted(hint.theirs, shadow, status), now)...)
	}
	var told *metav1.Condition
	if unreadable != nil {
		told = &metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStatusUnreadable, Message: unreadable.Error(),
		}
	}
	return append(news, showHint(status, v1alpha1.PodReported, told, now)...)
}

// showHint sets the condition in the status of the home pod while it is False, and returns it if that is news.
func showHint(status *corev1.PodStatus, kind corev1.PodConditionType, told *metav1.Condition, now metav1.Time) []corev1.PodCondition {
	at := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if told == nil || told.Status != metav1.ConditionFalse {
		if at >= 0 {
			status.Conditions = slices.Delete(status.Conditions, at, at+1)
		}
		return nil
	}
	c := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: now, Reason: word(told.Reason), Message: bounded(told.Message),
	}
	if at < 0 {
		status.Conditions = append(status.Conditions, c)
		return []corev1.PodCondition{c}
	}
	was := status.Conditions[at]
	c.LastTransitionTime, c.LastProbeTime = was.LastTransitionTime, was.LastProbeTime
	status.Conditions[at] = c
	if c.Reason == was.Reason {
		return nil
	}
	return []corev1.PodCondition{c}
}

// hinted returns what the provider does not do for the pod, as that condition of its ShadowPod says.
func hinted(theirs string, shadow *v1alpha1.ShadowPod, status *corev1.PodStatus) *metav1.Condition {
	found := meta.FindStatusCondition(shadow.Status.Conditions, theirs)
	if theirs != v1alpha1.ConditionScheduled {
		return found
	}
	if reason, message, is := offload.GivenUp(shadow); is && !everStarted(status) {
		return &metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRefusedByProvider,
			Message: "The provider refuses to run the pod: " + word(reason) + ": " + message,
		}
	}
	if !isRoomless(found) {
		return nil
	}
	if onward := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionOnward); onward != nil {
		found = found.DeepCopy()
		found.Message += ". " + onward.Message // a cluster with room may be one that home has excluded
	}
	return found
}

var wordPattern = regexp.MustCompile(`^[A-Za-z]{1,63}$`)

// word returns the reason that a peer gives if it is one.
func word(reason string) string {
	if !wordPattern.MatchString(reason) {
		return "Unknown"
	}
	return reason
}

// addressMap returns how this cluster sees the pod addresses of the peer that runs the pod, and whether a network leads there,
// be it interrupted: pods that have lost their addresses would have to be written, all of them, and again when it is back.
// Without one the pod has no address, so that it is no endpoint of a Service, which nobody could reach. There is no map while the
// ranges are not known: a peer's raw address may be that of a local pod.
func (c *podController) addressMap(ctx context.Context, home *corev1.Pod) (m offload.AddressMap, connected bool, err error) {
	peer := &v1alpha1.Peer{}
	key := client.ObjectKey{Name: peerOf(home.Spec.NodeName)}
	if err := c.client.Get(ctx, key, peer, client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	if !peer.HasNetwork() {
		return nil, false, nil
	}
	mappings := overlay.Mappings(peer.Status.Mappings)
	if len(mappings) == 0 {
		return nil, true, nil
	}
	return func(theirs netip.Addr) (netip.Addr, bool) { return overlay.Seen(mappings, theirs) }, true, nil
}

// traceStatus records that the status of a pod was written, until the pod is ready, and then all of the time since it was
// bound.
func (c *podController) traceStatus(ctx context.Context, home *corev1.Pod, written *corev1.PodStatus, began time.Time) {
	root := c.tracer.Home(home.UID)
	if !root.IsSampled() || !trace.Underway(&home.Status) {
		return
	}
	now, attributes := c.clock.Now(), attributesOf(home)
	c.tracer.Record(ctx, root, trace.Span{Name: "write Pod status", Start: began, End: now, Attributes: attributes})
	if trace.Underway(written) {
		return
	}
	whole := trace.Span{Start: boundAt(home), End: now, Attributes: attributes}
	if written.Phase == corev1.PodFailed {
		whole.Err = errors.New("the pod failed")
	}
	c.tracer.RecordRoot(ctx, root, whole)
}
