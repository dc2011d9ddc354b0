// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// nodeFacts is what there is about a virtual node that is there or should be. What does not exist, or must not be seen, is nil.
type nodeFacts struct {
	name  string
	node  *corev1.Node
	peer  *v1alpha1.Peer
	offer *v1alpha1.Advertisement // our copy of what the peer offers
}

// nodeFactsOf puts together what is known about a virtual node.
func (s *snapshot) nodeFactsOf(name string) nodeFacts {
	f := nodeFacts{name: name, node: s.node(name)}
	f.peer = find(s.peers.Items, func(p *v1alpha1.Peer) bool {
		return v1alpha1.VirtualNodeName(p.Name) == name && p.HasRole(v1alpha1.RoleProvider)
	})
	if f.peer != nil {
		f.offer = find(s.offers.Items, func(o *v1alpha1.Advertisement) bool {
			return o.Namespace == v1alpha1.TenantNamespace(f.peer.Name) && o.Name == f.peer.Spec.ClusterID
		})
	}
	return f
}

// A nodeCause is why a virtual node takes no new pods.
type nodeCause struct {
	// blind: nobody knows how the pods are that it has.
	blind bool
	// look returns the cause, without the node's name, if it is so.
	look func(nodeFacts) []podProblem
}

// nodeCauses are all reasons for which a virtual node takes no new pods, whatever they ask for; what explains the others
// comes first. `explain`, `check` and `status` say the same.
var nodeCauses = []nodeCause{
	{true, suspendedCause},
	{true, strangerCause},
	{true, cutOffCause},
	{false, refusedCause},
	{false, leavingCause},
	{false, cordonCause},
	{false, withdrawnCause},
	{false, missingCause},
}

// closed is why the node takes no new pods, nil if it does.
func (f nodeFacts) closed() *podProblem { return f.first(func(nodeCause) bool { return true }) }

// blind is why nobody knows how the pods of the node are, nil if that is known.
func (f nodeFacts) blind() *podProblem { return f.first(func(c nodeCause) bool { return c.blind }) }

func (f nodeFacts) first(counts func(nodeCause) bool) *podProblem {
	for _, cause := range nodeCauses {
		if !counts(cause) {
			continue
		}
		if found := cause.look(f); len(found) > 0 {
			return &found[0]
		}
	}
	return nil
}

// refusing is the condition Authenticated of the peer if it does not let us in for that reason.
func (f nodeFacts) refusing(reason string) *metav1.Condition {
	if f.peer == nil {
		return nil
	}
	said := meta.FindStatusCondition(f.peer.Status.Conditions, v1alpha1.ConditionAuthenticated)
	if said == nil || said.Status != metav1.ConditionFalse || said.Reason != reason {
		return nil
	}
	return said
}

// suspendedCause tells of a provider that knows us and gives us no rights.
func suspendedCause(f nodeFacts) []podProblem {
	if f.refusing(v1alpha1.ReasonForbidden) == nil {
		return nil
	}
	return problem(v1alpha1.ReasonPeerSuspended, "peer "+f.peer.Name+" has suspended this cluster, and tells nothing of what runs there",
		"Ask its administrator: `kubectl hanse resume` there ends it", linkPeer)
}

// strangerCause tells of a provider that does not take our credentials.
func strangerCause(f nodeFacts) []podProblem {
	if f.refusing(v1alpha1.ReasonUnauthorized) == nil {
		return nil
	}
	return problem(v1alpha1.ReasonUnauthorized, "peer "+f.peer.Name+" does not take the credentials of this cluster any more",
		"Have its administrator run `kubectl hanse invite NAME --renew`, and join with that: it is the same peer with the same pods", linkPeer)
}

// cutOffCause tells of a provider that does not answer, or cannot be asked. hanse-kubelet says which, if it runs.
func cutOffCause(f nodeFacts) []podProblem {
	if f.node == nil || exchange.IsReady(f.node) {
		return nil
	}
	why, fix := "the peer does not answer, or hanse-kubelet does not run", "kubectl hanse check says which"
	for _, c := range f.node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Reason == v1alpha1.ReasonDisconnected && c.Message != "" {
			why, fix = strings.ToLower(c.Message[:1])+c.Message[1:], "kubectl hanse status "+f.node.Labels[v1alpha1.LabelPeer]
		}
	}
	return problem(v1alpha1.ReasonDisconnected, why, fix, linkNode)
}

// refusedCause tells of an offer that is not used.
func refusedCause(f nodeFacts) []podProblem {
	if f.offer == nil || f.offer.Status.Acknowledgement == nil {
		return nil
	}
	const accept = "kubectl hanse accept %s, if you want it used"
	switch ack := f.offer.Status.Acknowledgement; {
	case ack.State == v1alpha1.AcknowledgementAccepted:
		return nil
	case ack.Reason == v1alpha1.ReasonPendingApproval:
		return problem(ack.Reason, "the peer's offer waits for an administrator of this cluster", fmt.Sprintf(accept, f.peer.Name), linkPeer)
	case ack.Reason == v1alpha1.ReasonRefusedByAdministrator:
		return problem(ack.Reason, "an administrator of this cluster has refused the peer's offer", fmt.Sprintf(accept, f.peer.Name), linkPeer)
	default:
		return problem(orElse(ack.Reason, string(ack.State)), "the peer's offer is not used: "+orElse(ack.Message, "nobody has looked at it yet"),
			"kubectl hanse status "+f.peer.Name, linkPeer)
	}
}

// phases say what a provider's offer that is no longer open means.
var phases = map[v1alpha1.OfferPhase]struct{ reason, says string }{
	v1alpha1.OfferCordoned: {v1alpha1.ReasonPeerCordoned, "the peer has cordoned this cluster: it takes no more pods of it"},
	v1alpha1.OfferDraining: {v1alpha1.ReasonPeerDraining, "the peer has asked this cluster to move its pods away, and takes no more"},
	v1alpha1.OfferLeaving:  {v1alpha1.ReasonPeerLeft, "the peer parts from this cluster"},
}

// leavingCause tells of a provider that wants no more pods of ours.
func leavingCause(f nodeFacts) []podProblem {
	if f.offer == nil {
		return nil
	}
	phase, found := phases[f.offer.Spec.Phase]
	if !found {
		return nil
	}
	return problem(phase.reason, phase.says, "Ask its administrator: `kubectl hanse uncordon` there ends it, unless it parts", linkPeer)
}

// cordonCause tells of a node that somebody here has closed.
func cordonCause(f nodeFacts) []podProblem {
	if f.node == nil || !f.node.Spec.Unschedulable {
		return nil
	}
	return problem("Cordoned", "it is cordoned in this cluster", "If that is over: kubectl uncordon "+f.name, linkNode)
}

// withdrawnCause tells of a node that Hanse has closed, if nothing says why.
func withdrawnCause(f nodeFacts) []podProblem {
	if f.node == nil || !slices.ContainsFunc(f.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintWithdrawn }) {
		return nil
	}
	return problem("Closed", "it takes no more pods, since its offer has ended or was withdrawn", "kubectl hanse status says how its peer is", linkNode)
}

// missingCause tells of a peer that should have a node.
func missingCause(f nodeFacts) []podProblem {
	if f.node != nil || f.peer == nil {
		return nil
	}
	ready := readyOf(f.peer.Status.Conditions)
	return problem(ready.Reason, "there is no such node yet: "+orElse(ready.Message, "it comes with the peer's first accepted offer"),
		"kubectl hanse status "+f.peer.Name, linkPeer)
}
