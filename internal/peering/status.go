// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// fieldOwner is who writes the status of Peers.
const fieldOwner = client.FieldOwner("hanse-peering")

// maxMessage bounds a message, which may hold the words of others: the API takes it comfortably.
const maxMessage = 1024

// A condition is a metav1.Condition without what the API adds.
type condition struct {
	status          metav1.ConditionStatus
	reason, message string
}

func (c *condition) ok() bool { return c.status == metav1.ConditionTrue }

func isTrue(message string) *condition {
	return &condition{metav1.ConditionTrue, v1alpha1.ReasonReady, message}
}

func isFalse(reason, message string, args ...any) *condition {
	return &condition{metav1.ConditionFalse, reason, fmt.Sprintf(message, args...)}
}

func unknown(reason, message string, args ...any) *condition {
	return &condition{metav1.ConditionUnknown, reason, fmt.Sprintf(message, args...)}
}

// conditions are those that this package writes. Each is told by a function that returns nil if it has nothing new to say.
// They are asked in this order, and find in the status of the Peer what those before them have said.
var conditions = []struct {
	kind string
	tell func(o *observation) *condition
}{
	{v1alpha1.ConditionJoined, joined},
	{v1alpha1.ConditionSession, sessionKept},
	{v1alpha1.ConditionAuthenticated, authenticated},
	{v1alpha1.ConditionReachable, reachable},
	{v1alpha1.ConditionCompatible, compatibility},
	{v1alpha1.ConditionWithinBudget, withinBudget},
	{v1alpha1.ConditionConnected, connected},
	{v1alpha1.ConditionAdvertised, advertised},
	{v1alpha1.ConditionReady, readiness},
}

// said returns what a condition of the Peer says, or nil.
func said(peer *v1alpha1.Peer, kind string) *condition {
	return conditionOf(peer.Status.Conditions, kind)
}

func conditionOf(conditions []metav1.Condition, kind string) *condition {
	found := meta.FindStatusCondition(conditions, kind)
	if found == nil {
		return nil
	}
	return &condition{found.Status, found.Reason, found.Message}
}

// statusOf turns what was observed into the status of the Peer. What nothing is known of stays as it is.
func statusOf(o observation, now metav1.Time) v1alpha1.PeerStatus {
	o.peer = o.peer.DeepCopy()
	status := &o.peer.Status
	status.ObservedGeneration = o.peer.Generation
	if !o.peer.HasRole(v1alpha1.RoleConsumer) && !o.deleted() {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionJoined)
		status.Invitation = nil
	}
	if !o.peer.HasRole(v1alpha1.RoleProvider) && !o.deleted() {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionAdvertised)
	}
	if !hasSession(o.peer) {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionSession)
		status.Session = nil
	}
	for _, c := range conditions {
		if found := c.tell(&o); found != nil {
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{
				Type: c.kind, Status: found.status, Reason: found.reason, Message: sanitize.Text(found.message, maxMessage),
				ObservedGeneration: o.peer.Generation, LastTransitionTime: now,
			})
		}
	}
	o.contact.session.show(status)
	if o.deleted() {
		return *status
	}
	o.invited.show(status)
	status.Mappings = overlay.Written(o.addresses.Mappings)
	status.Direct = overlay.WrittenRanges(o.addresses.Direct)
	if theirs, known := theirSoftware(&o); known {
		status.Version = theirs.version
	}
	o.contact.probe.show(status)
	o.contact.probe.bandwidth.show(status)
	showTunnel(status, o.connection)
	return *status
}

// showTunnel shows what is measured through the tunnel, while there is one. The round trip takes the place of that to the API
// server: it is the one that pods have.
func showTunnel(status *v1alpha1.PeerStatus, connection *v1alpha1.Connection) {
	status.LossPercent, status.Throughput = nil, nil
	if connection == nil || !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionConnected) {
		return
	}
	measured := connection.Status.DeepCopy()
	status.LossPercent, status.Throughput = measured.LossPercent, measured.Throughput
	if measured.RoundTripTime != nil {
		status.RoundTripTime, status.RoundTripDeviation = measured.RoundTripTime, nil
	}
}

// report writes what was observed into the status of the Peer, if it is not there already, and tells of a change.
func (c *Controller) report(ctx context.Context, o *observation) error {
	status := statusOf(*o, metav1.NewTime(c.config.Clock.Now()))
	if equality.Semantic.DeepEqual(o.peer.Status, status) {
		return nil
	}
	if err := local.ApplyStatus(ctx, c.client, fieldOwner, o.peer, &status); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.announce(ctx, o.peer, &status)
	return nil
}

// An announcement says of which changes of a condition the user is told by an event.
type announcement struct {
	kind, action string
	// quiet are reasons of which nobody is told, normal those that are no warning.
	quiet, normal []string
	// warns: whatever is told is a warning, though the condition may be True.
	warns bool
}

var announcements = []announcement{
	{kind: v1alpha1.ConditionReady, action: "CheckPeer", normal: []string{v1alpha1.ReasonPending}},
	{
		kind: v1alpha1.ConditionJoined, action: "Invite", normal: []string{v1alpha1.ReasonInvited},
		quiet: []string{v1alpha1.ReasonPending, v1alpha1.ReasonNotInvited, v1alpha1.ReasonJoining},
	},
	{
		kind: v1alpha1.ConditionSession, action: "KeepSession", warns: true,
		quiet: []string{v1alpha1.ReasonNotInvited, v1alpha1.ReasonReady, v1alpha1.ReasonJoining, v1alpha1.ReasonPending},
	},
}

// announce tells of what has changed: by an event to the user, by a line in the log to us.
func (c *Controller) announce(ctx context.Context, peer *v1alpha1.Peer, status *v1alpha1.PeerStatus) {
	log := ctrl.LoggerFrom(ctx)
	for _, a := range announcements {
		before, after := said(peer, a.kind), meta.FindStatusCondition(status.Conditions, a.kind)
		if after == nil || !a.changed(before, after) && !a.invitedAnew(&peer.Status, status) {
			continue
		}
		log.Info("Peer changed", "condition", a.kind, "status", after.Status, "reason", after.Reason, "message", after.Message)
		if slices.Contains(a.quiet, after.Reason) {
			continue
		}
		kind := corev1.EventTypeWarning
		if after.Status == metav1.ConditionTrue && !a.warns || slices.Contains(a.normal, after.Reason) {
			kind = corev1.EventTypeNormal
		}
		c.recorder.Eventf(peer, nil, kind, after.Reason, a.action, "%s", after.Message)
	}
}

func (announcement) changed(before *condition, after *metav1.Condition) bool {
	return before == nil || before.status != after.Status || before.reason != after.Reason
}

// invitedAnew reports whether another invitation was made, of which Joined says the same as of the one before.
func (a announcement) invitedAnew(before, after *v1alpha1.PeerStatus) bool {
	return a.kind == v1alpha1.ConditionJoined && after.Invitation != nil &&
		(before.Invitation == nil || before.Invitation.Serial != after.Invitation.Serial)
}

// readiness sums up the others. What a peer must be for us depends on its roles.
func readiness(o *observation) *condition {
	for _, c := range []*condition{tenancy(o), acceptance(o.peer)} {
		if !c.ok() {
			return c
		}
	}
	others := []*condition{authenticated(o), reachable(o), compatibility(o), withinBudget(o)}
	oneWay := isOneWay(o)
	if o.peer.HasRole(v1alpha1.RoleProvider) && !oneWay {
		return provision(o, others)
	}
	if found := cmp.Or(first(others, metav1.ConditionFalse), networkDown(o)); found != nil {
		return found.asReady()
	}
	if oneWay {
		return isTrue("The peer may run pods in this cluster. Only this direction is agreed: the peer has not invited this cluster")
	}
	return isTrue("The peer may run pods in this cluster")
}

// acceptance is whether the two clusters have agreed to be peers, as far as that is for the peer to say.
func acceptance(peer *v1alpha1.Peer) *condition {
	if len(peer.Spec.Roles) == 0 {
		return isFalse(v1alpha1.ReasonDiscovered, "The cluster was only found in the network: to become its peer, set "+
			"spec.roles, and join it or invite it")
	}
	if !peer.HasRole(v1alpha1.RoleConsumer) {
		return isTrue("")
	}
	joined := said(peer, v1alpha1.ConditionJoined)
	if joined == nil {
		return isFalse(v1alpha1.ReasonPending, "The invitation for the peer was not looked at yet")
	}
	return joined.asReady()
}

// provision is whether our pods can run at the peer.
func provision(o *observation, others []*condition) *condition {
	peer := o.peer
	if session := said(peer, v1alpha1.ConditionSession); session != nil && broken(session) {
		return session.asReady()
	}
	// Authenticated comes first where both fail, since it says what to do about credentials.
	if found := first(others, metav1.ConditionFalse, metav1.ConditionUnknown); found != nil {
		return found.asReady()
	}
	if c := o.addresses.conflict; c != nil {
		return isFalse(c.Reason, "%s", c.Message)
	}
	ad := advertised(o)
	switch {
	case !ad.ok():
		return ad.asReady()
	case networkDown(o) != nil:
		return networkDown(o)
	case peer.Agentless():
		return &condition{metav1.ConditionTrue, v1alpha1.ReasonAgentless, agentlessLimits(peer)}
	default:
		return isTrue("Pods of this cluster may run at the peer")
	}
}

// broken reports whether a session does not work, and not merely for a shorter time than it should.
func broken(session *condition) bool {
	lives := []string{v1alpha1.ReasonSessionShortened, v1alpha1.ReasonRenewalFailed}
	return session.status == metav1.ConditionFalse && !slices.Contains(lives, session.reason)
}

// asReady returns what the condition says as condition Ready.
func (c *condition) asReady() *condition {
	if c.ok() {
		return isTrue(c.message)
	}
	return isFalse(c.reason, "%s", c.message)
}

// first returns the first condition of the first of the statuses that any condition has, or nil.
func first(conditions []*condition, statuses ...metav1.ConditionStatus) *condition {
	for _, status := range statuses {
		for _, c := range conditions {
			if c.status == status {
				return c
			}
		}
	}
	return nil
}

// tenancy is whether the tenant namespace is as it should be, as a condition Ready.
func tenancy(o *observation) *condition {
	namespace := v1alpha1.TenantNamespace(o.peer.Name)
	switch {
	case o.contact.obstacle.theirs:
		return isFalse(v1alpha1.ReasonParting, "The two clusters part, and this one waits for %s. If the peer is gone for "+
			"ever, run `kubectl hanse unpeer %s --force`", o.contact.obstacle.thing, o.peer.Name)
	case o.contact.obstacle.stands():
		return isFalse(v1alpha1.ReasonParting, "The two clusters part, and this one waits for %s", o.contact.obstacle.thing)
	case o.tenant == tenantTaken:
		return isFalse(v1alpha1.ReasonNamespaceTaken, "Namespace %s exists and was not made for this Peer: delete it, or "+
			"delete this Peer and make one of another name", namespace)
	case o.tenant == tenantTerminating:
		return isFalse(v1alpha1.ReasonNamespaceTerminating, "Namespace %s is being deleted; Hanse makes it again after that",
			namespace)
	case o.tenant == tenantUnsettled:
		return isFalse(v1alpha1.ReasonPending, "Namespace %s is being prepared", namespace)
	case o.tenant == tenantFailed:
		return isFalse(v1alpha1.ReasonPending, "Namespace %s could not be prepared: %v", namespace, o.tenantErr)
	default:
		return isTrue("")
	}
}
