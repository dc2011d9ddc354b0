// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// An AddressMap returns the address under which this cluster sees a pod of the peer, and whether there is one. None at all
// means that no address is seen.
type AddressMap func(theirs netip.Addr) (ours netip.Addr, ok bool)

// ErrUnreadable is returned by Inbound for a record that tells a status which cannot be read.
var ErrUnreadable = errors.New("what the provider reports about the pod cannot be read")

// ErrOtherPod is returned by Inbound for a record of another pod of the same name.
var ErrOtherPod = errors.New("the ShadowPod is of another pod")

// Inbound returns the status of the home pod from the status that its provider recorded. The record is a claim: invalid
// values are left out, everything is bounded, and only containers of the home pod are taken. Conditions with other writers
// (PodScheduled, readiness gates) and the host's addresses stay. A pod that ended stays ended. What happened has happened
// since the home pod was created and before now, whatever the provider's clock says. With ErrUnreadable it returns the status of
// a pod of which nobody knows how it is.
func Inbound(home *corev1.Pod, shadow *v1alpha1.ShadowPod, m AddressMap, now time.Time) (corev1.PodStatus, error) {
	out := *home.Status.DeepCopy()
	if shadow.Spec.HomeUID != home.UID {
		return out, ErrOtherPod
	}
	if Terminal(out.Phase) {
		return out, nil
	}
	remote, err := claim(shadow)
	if err != nil {
		doubt(&out, second(now))
		return out, err
	}
	if remote != nil {
		life := lifeOf(home, now)
		life.bound(remote, &out)
		take(&out, home, remote, shadow, life)
		takeAddresses(&out, remote, m)
	}
	return out, nil
}

// GivenUp returns why the provider can no longer make the pod, if the record says so.
func GivenUp(shadow *v1alpha1.ShadowPod) (reason, message string, is bool) {
	c := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionUnrecoverable)
	if c == nil || c.Status != metav1.ConditionTrue {
		return "", "", false
	}
	return bounded(c.Reason, maxWord), bounded(c.Message, maxMessage), true
}

// claim decodes the status that the provider reports, and bounds it. It returns nil if there is none yet.
func claim(shadow *v1alpha1.ShadowPod) (*corev1.PodStatus, error) {
	if shadow.Status.Pod == nil || len(shadow.Status.Pod.Raw) == 0 {
		return nil, nil
	}
	raw, remote := shadow.Status.Pod.Raw, &corev1.PodStatus{}
	if len(raw) > MaxStatusBytes || string(raw) == tooLarge {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrUnreadable, MaxStatusBytes)
	}
	// A newer provider may report fields that we do not know, so unknown fields are no error.
	if err := decode(raw, remote, false); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	clean(remote)
	return remote, nil
}

// doubt says that nobody knows whether the pod is ready.
func doubt(out *corev1.PodStatus, now metav1.Time) {
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		if PodCondition(out, kind) != nil {
			setCondition(out, corev1.PodCondition{
				Type: kind, Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonStatusUnreadable, LastTransitionTime: now,
				Message: "What the provider reports about the pod cannot be read",
			})
		}
	}
}

func take(out *corev1.PodStatus, home *corev1.Pod, remote *corev1.PodStatus, shadow *v1alpha1.ShadowPod, life span) {
	switch ended := mayEnd(home, remote, shadow); {
	case !ended && Terminal(remote.Phase):
		remote = interruptedNow(remote, "Interrupted", life.to)
	case !Terminal(remote.Phase) && endsUnasked(home, shadow):
		remote = interruptedNow(remote, "Terminating", life.to)
	}
	if knownPhase(remote.Phase) && !goesBack(out.Phase, remote.Phase) {
		out.Phase = remote.Phase
	}
	out.Reason, out.Message = remote.Reason, remote.Message
	out.ObservedGeneration = observedGeneration(home, shadow)
	if out.StartTime == nil && remote.StartTime != nil && !remote.StartTime.IsZero() {
		out.StartTime = remote.StartTime.DeepCopy()
	}
	c := statusReader{home: home, restarts: shadow.Status.Restarts, remade: shadow.Status.Recreations > 0, life: life}
	var ephemeral []corev1.Container
	for i := range home.Spec.EphemeralContainers {
		ephemeral = append(ephemeral, *asContainer(&home.Spec.EphemeralContainers[i]))
	}
	out.InitContainerStatuses = c.containers(home.Spec.InitContainers, remote.InitContainerStatuses, out.InitContainerStatuses, awaited)
	out.ContainerStatuses = c.containers(home.Spec.Containers, remote.ContainerStatuses, out.ContainerStatuses, awaited)
	// Ephemeral containers run once: one that a pod made anew lacks is lost.
	out.EphemeralContainerStatuses = c.containers(ephemeral, remote.EphemeralContainerStatuses, out.EphemeralContainerStatuses, c.lost)
	out.AllocatedResources, out.Resources = remote.AllocatedResources, remote.Resources
	takeConditions(out, home, remote)
}

// interruptedNow is Interrupted for what the provider has not told itself, so that it has no time of the provider's.
func interruptedNow(remote *corev1.PodStatus, reason string, now metav1.Time) *corev1.PodStatus {
	out := Interrupted(remote, reason)
	for i := range out.Conditions {
		if out.Conditions[i].Status != remote.Conditions[i].Status {
			out.Conditions[i].LastTransitionTime = now
		}
	}
	return &out
}

// endsUnasked says whether the provider ends the pod, or has given it up, though home wants it.
func endsUnasked(home *corev1.Pod, shadow *v1alpha1.ShadowPod) bool {
	_, _, givenUp := GivenUp(shadow)
	return home.DeletionTimestamp.IsZero() && (givenUp || !shadow.DeletionTimestamp.IsZero())
}

// observedGeneration returns the generation of the home pod that the provider has brought about: that of which the record is,
// when the provider has looked at the newest version of it and left nothing out.
func observedGeneration(home *corev1.Pod, shadow *v1alpha1.ShadowPod) int64 {
	before := home.Status.ObservedGeneration
	if shadow.Status.ObservedGeneration < shadow.Generation ||
		meta.IsStatusConditionFalse(shadow.Status.Conditions, v1alpha1.ConditionUpdated) {
		return before
	}
	text, _, _ := strings.Cut(shadow.Annotations[v1alpha1.AnnotationHomeRevision], "-")
	sent, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return before
	}
	return max(before, min(sent, home.Generation))
}

// mayEnd says whether a terminal phase may go home. One of a pod that the provider will make again may not: home's
// controllers would replace the home pod, and it cannot be taken back. Once home deletes the pod, nothing is made again.
func mayEnd(home *corev1.Pod, remote *corev1.PodStatus, shadow *v1alpha1.ShadowPod) bool {
	if !home.DeletionTimestamp.IsZero() {
		return true
	}
	return shadow.Status.Phase == string(remote.Phase) && !FailedByPlatform(remote)
}

var phases = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}

func knownPhase(phase corev1.PodPhase) bool { return slices.Contains(phases, phase) }

// goesBack says whether a phase comes before one that was shown: a pod that runs is never seen pending again.
func goesBack(shown, claimed corev1.PodPhase) bool {
	return shown == corev1.PodRunning && claimed == corev1.PodPending
}

// takeAddresses takes at most one address of each family, as this cluster sees it.
func takeAddresses(out *corev1.PodStatus, remote *corev1.PodStatus, m AddressMap) {
	out.PodIP, out.PodIPs = "", nil
	claimed := []string{remote.PodIP}
	for i := range remote.PodIPs {
		claimed = append(claimed, remote.PodIPs[i].IP)
	}
	for _, text := range claimed {
		addr, err := netip.ParseAddr(text)
		if err != nil || m == nil {
			continue
		}
		seen, ok := m(addr.Unmap().WithZone(""))
		if ok && !slices.ContainsFunc(out.PodIPs, ofFamily(seen)) {
			out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: seen.String()})
		}
	}
	if len(out.PodIPs) > 0 {
		out.PodIP = out.PodIPs[0].IP
	}
}

func ofFamily(a netip.Addr) func(corev1.PodIP) bool {
	return func(ip corev1.PodIP) bool { return strings.Contains(ip.IP, ":") == a.Is6() }
}

// ShowFamilies leaves to a pod that runs at a peer the addresses of those families that pods of this cluster have, in their order: to
// others nothing leads, and the first one is of the cluster's main family. A cluster of which no address is known shows all.
func ShowFamilies(out *corev1.PodStatus, own []netip.Addr) {
	if len(own) == 0 {
		return
	}
	all := out.PodIPs
	out.PodIP, out.PodIPs = "", nil
	for _, a := range own {
		if i := slices.IndexFunc(all, ofFamily(a)); i >= 0 {
			out.PodIPs = append(out.PodIPs, all[i])
		}
	}
	if len(out.PodIPs) > 0 {
		out.PodIP = out.PodIPs[0].IP
	}
}

// Disrupt says that the provider fails the pod, and not its own containers.
func Disrupt(out *corev1.PodStatus, reason, message string, now time.Time) {
	setCondition(out, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: second(now),
	})
}

// GiveUp fails the pod, which was disrupted, so that its controller at home replaces it.
func GiveUp(out *corev1.PodStatus, reason, message string, now time.Time) {
	out.Phase, out.Reason, out.Message = corev1.PodFailed, reason, message
	Disrupt(out, reason, message, now)
	at := second(now)
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		if c := PodCondition(out, kind); c != nil {
			setCondition(out, corev1.PodCondition{
				Type: kind, Status: corev1.ConditionFalse, Reason: "PodFailed", ObservedGeneration: c.ObservedGeneration, LastTransitionTime: at,
			})
		}
	}
	for _, container := range ContainerStatuses(out) {
		lose(container, at)
	}
}

// lose marks a container as ended whose end nobody saw, as a kubelet does.
func lose(s *corev1.ContainerStatus, at metav1.Time) {
	s.Ready = false
	if s.State.Terminated != nil {
		return
	}
	ended := &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be found at its provider",
		ContainerID: s.ContainerID,
	}
	if s.State.Running != nil {
		ended.StartedAt, ended.FinishedAt = s.State.Running.StartedAt, at
	}
	s.State = corev1.ContainerState{Terminated: ended}
}

func takeConditions(out *corev1.PodStatus, home *corev1.Pod, remote *corev1.PodStatus) {
	for _, known := range conditions {
		claimed := PodCondition(remote, known.kind)
		switch {
		case !known.comesHome:
			continue
		case claimed == nil && known.passes:
			out.Conditions = slices.DeleteFunc(out.Conditions, func(c corev1.PodCondition) bool { return c.Type == known.kind })
			continue
		case claimed == nil, !knownConditionStatus(claimed.Status):
			continue
		}
		c := *claimed
		c.ObservedGeneration = out.ObservedGeneration
		if c.Type == corev1.PodReady {
			judgeGates(&c, home)
		}
		setCondition(out, c)
	}
}

func knownConditionStatus(s corev1.ConditionStatus) bool {
	return s == corev1.ConditionTrue || s == corev1.ConditionFalse || s == corev1.ConditionUnknown
}

// judgeGates holds a ready pod back until home's readiness gates are open: their controllers are at home.
func judgeGates(ready *corev1.PodCondition, home *corev1.Pod) {
	if ready.Status != corev1.ConditionTrue {
		return
	}
	for _, gate := range home.Spec.ReadinessGates {
		c := PodCondition(&home.Status, gate.ConditionType)
		if c != nil {
			ready.LastTransitionTime = later(ready.LastTransitionTime, c.LastTransitionTime)
		}
		if c == nil || c.Status != corev1.ConditionTrue {
			ready.Status = corev1.ConditionFalse
			ready.Reason = "ReadinessGatesNotReady"
			ready.Message = "Readiness gate " + string(gate.ConditionType) + " is not True"
			return
		}
	}
}

func later(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}

// setCondition replaces the condition of the same type. The time of the last change stays while the status does.
func setCondition(out *corev1.PodStatus, c corev1.PodCondition) {
	was := PodCondition(out, c.Type)
	if was == nil {
		out.Conditions = append(out.Conditions, c)
		return
	}
	if was.Status == c.Status && !was.LastTransitionTime.IsZero() {
		c.LastTransitionTime = was.LastTransitionTime
	}
	*was = c
}

// A span is when all that is told of a pod has happened, by the clock of its home.
type span struct{ from, to metav1.Time }

func lifeOf(home *corev1.Pod, now time.Time) span { return span{home.CreationTimestamp, second(now)} }

// second returns the time as the API server keeps it.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// nearest returns the time of the span that is nearest. No time stays none.
func (s span) nearest(t metav1.Time) metav1.Time {
	switch {
	case t.IsZero():
		return t
	case t.Before(&s.from):
		return s.from
	case s.to.Before(&t):
		return s.to
	default:
		return t
	}
}

// bound brings the times that a provider tells into the span. What was shown of a container before stays.
func (s span) bound(remote, shown *corev1.PodStatus) {
	if remote.StartTime != nil {
		remote.StartTime = ptr.To(s.nearest(*remote.StartTime))
	}
	for i := range remote.Conditions {
		c := &remote.Conditions[i]
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = s.to // who waits for a pod to be ready for long enough needs one
		}
		c.LastTransitionTime = s.nearest(c.LastTransitionTime)
	}
	before := ContainerStatuses(shown)
	for _, c := range ContainerStatuses(remote) {
		at := slices.IndexFunc(before, func(was *corev1.ContainerStatus) bool { return was.Name == c.Name })
		was := corev1.ContainerStatus{}
		if at >= 0 {
			was = *before[at]
		}
		if c.State.Running != nil {
			c.State.Running.StartedAt = s.started(c.State.Running.StartedAt, c.ContainerID, &was)
		}
		s.boundEnd(c.State.Terminated, &was)
		s.boundEnd(c.LastTerminationState.Terminated, &was)
	}
}

// started returns when the container of that id started: when it was shown to, if it was.
func (s span) started(claimed metav1.Time, id string, was *corev1.ContainerStatus) metav1.Time {
	if was.State.Running != nil && was.ContainerID == id {
		return was.State.Running.StartedAt
	}
	if ended := endOf(id, was); ended != nil && !ended.StartedAt.IsZero() {
		return ended.StartedAt
	}
	return s.nearest(claimed)
}

func (s span) boundEnd(claimed *corev1.ContainerStateTerminated, was *corev1.ContainerStatus) {
	if claimed == nil {
		return
	}
	claimed.StartedAt = s.started(claimed.StartedAt, claimed.ContainerID, was)
	if ended := endOf(claimed.ContainerID, was); ended != nil && !ended.FinishedAt.IsZero() {
		claimed.FinishedAt = ended.FinishedAt
		return
	}
	claimed.FinishedAt = s.nearest(claimed.FinishedAt)
	if !claimed.FinishedAt.IsZero() {
		claimed.FinishedAt = later(claimed.FinishedAt, claimed.StartedAt)
	}
}

// endOf returns how the container of that id was shown to have ended, or nil.
func endOf(id string, was *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	for _, ended := range []*corev1.ContainerStateTerminated{was.State.Terminated, was.LastTerminationState.Terminated} {
		if ended != nil && ended.ContainerID == id {
			return ended
		}
	}
	return nil
}
