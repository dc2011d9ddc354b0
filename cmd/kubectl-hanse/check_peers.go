package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// sessionMargin is how long before the end of a session one should know. A session of 30 days is renewed daily.
const sessionMargin = 7 * 24 * time.Hour

// peers checks every peer, and what is left of former ones.
func (c *checker) peers(ctx context.Context) []finding {
	list := &v1alpha1.PeerList{}
	if err := c.client.List(ctx, list); err != nil {
		return []finding{topicPeer.unknown("peers", err)}
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Peer) int { return strings.Compare(a.Name, b.Name) })
	var findings []finding
	for i := range list.Items {
		findings = append(findings, c.peer(&list.Items[i])...)
	}
	if len(findings) == 0 {
		findings = append(findings, topicPeer.ok("peers", "there are none"))
	}
	return append(findings, c.tombstones(ctx)...)
}

// peer checks one peer.
func (c *checker) peer(peer *v1alpha1.Peer) []finding {
	if len(peer.Spec.Roles) == 0 {
		return []finding{topicPeer.skipped(peer.Name, "found in the network, and no peer yet")}
	}
	findings := conditionFindings(peer)
	now := c.now()
	if found := sessionFinding(peer, now); found != nil {
		findings = append(findings, *found)
	}
	if found := invitationFinding(peer, now); found != nil {
		findings = append(findings, *found)
	}
	if peer.HasRole(v1alpha1.RoleConsumer) && peer.Access() != v1alpha1.AccessOpen {
		verb := "uncordon"
		if peer.Access() == v1alpha1.AccessSuspended {
			verb = "resume"
		}
		findings = append(findings, topicAccess.warning(peer.Name+": access", "it is "+string(peer.Access()),
			fmt.Sprintf("if that is over: kubectl hanse %s %s", verb, peer.Name)))
	}
	return findings
}

// conditionFindings tell each condition of the peer.
func conditionFindings(peer *v1alpha1.Peer) []finding {
	if len(peer.Status.Conditions) == 0 {
		return []finding{topicPeer.failed(peer.Name, "Hanse has not looked at it yet", "see whether hanse-manager runs")}
	}
	conditions := slices.Clone(peer.Status.Conditions)
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	var findings []finding
	for _, condition := range conditions {
		findings = append(findings, conditionFinding(peer, condition))
	}
	return findings
}

// tolerable are the reasons with which a condition may be False for a while without anything being wrong.
var tolerable = []string{
	v1alpha1.ReasonInvited, v1alpha1.ReasonJoining, v1alpha1.ReasonSessionShortened, v1alpha1.ReasonRenewalFailed,
	v1alpha1.ReasonParting, v1alpha1.ReasonPeerCordoned, v1alpha1.ReasonPeerDraining,
}

func conditionFinding(peer *v1alpha1.Peer, condition metav1.Condition) finding {
	name := peer.Name + ": " + condition.Type
	found := condition.Reason
	if condition.Message != "" {
		found += ": " + condition.Message
	}
	fix := fmt.Sprintf("the message says what to do; all of it: kubectl hanse status %s", peer.Name)
	switch {
	case condition.Status == metav1.ConditionTrue:
		return topicPeer.ok(name, "%s", orElse(condition.Message, condition.Reason))
	case condition.Type == v1alpha1.ConditionConnected, condition.Status == metav1.ConditionUnknown,
		condition.Reason == v1alpha1.ReasonAgentless, condition.Reason == v1alpha1.ReasonNotInvited:
		return topicPeer.skipped(name, found)
	case slices.Contains(tolerable, condition.Reason):
		return topicPeer.warning(name, found, fix)
	default:
		return topicPeer.failed(name, found, fix)
	}
}

// sessionFinding tells when our credentials at the peer end.
func sessionFinding(peer *v1alpha1.Peer, now time.Time) *finding {
	if peer.Status.Session == nil || peer.Status.Session.Expires == nil || !peer.HasRole(v1alpha1.RoleProvider) {
		return nil
	}
	name, expires := peer.Name+": session", peer.Status.Session.Expires.Time
	at := expires.UTC().Format(time.RFC3339)
	found := topicSession.ok(name, "our credentials there are good until %s, and renewed by themselves", at)
	switch left := expires.Sub(now); {
	case left <= 0:
		found = topicSession.failed(name, "our credentials there ended at "+at,
			"have its administrator run `kubectl hanse invite NAME --renew` there, and join with that")
	case left < sessionMargin:
		found = topicSession.warning(name, "our credentials there end at "+at+" unless they are renewed before",
			fmt.Sprintf("see condition Session: kubectl hanse status %s", peer.Name))
	}
	return &found
}

// invitationFinding tells of an invitation that waits to be used.
func invitationFinding(peer *v1alpha1.Peer, now time.Time) *finding {
	status := peer.Status.Invitation
	if status == nil || status.Expires == nil || meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined) {
		return nil
	}
	name, at := peer.Name+": invitation", status.Expires.UTC().Format(time.RFC3339)
	found := topicInvitation.warning(name, "it waits to be used until "+at, "have its administrator join, or part from the peer")
	if !status.Expires.After(now) {
		found = topicInvitation.failed(name, "it ended unused at "+at,
			fmt.Sprintf("kubectl hanse invite %s --renew, or kubectl hanse unpeer %s", peer.Name, peer.Name))
	}
	return &found
}

// tombstones tells what is left of peers that were parted from by force.
func (c *checker) tombstones(ctx context.Context) []finding {
	list := &corev1.NamespaceList{}
	if err := c.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTombstone}); err != nil {
		return []finding{topicTombstone.unknown("tombstones", err)}
	}
	var findings []finding
	for i := range list.Items {
		ns := &list.Items[i]
		findings = append(findings, topicTombstone.warning("namespace "+ns.Name,
			fmt.Sprintf("it keeps the record of a forced parting until %s, for the case that the peer comes back",
				orElse(ns.Annotations[v1alpha1.AnnotationExpires], "it expires")),
			"nothing; if the peer never comes back: kubectl delete namespace "+ns.Name))
	}
	return findings
}
