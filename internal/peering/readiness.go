package peering

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// readiness sums up the others. What a peer must be for us depends on its roles.
func readiness(o *observation) *condition {
	const kind = v1alpha1.ConditionReady
	for _, c := range []*condition{tenancy(o), acceptance(o.peer)} {
		if !c.ok() {
			return c
		}
	}
	others := []*condition{authenticated(o), reachable(o), compatibility(o)}
	oneWay := isOneWay(o)
	switch {
	case o.peer.HasRole(v1alpha1.RoleProvider) && !oneWay:
		return provision(o, others)
	case firstFalse(others) != nil:
		return firstFalse(others).asReady()
	case oneWay:
		return isTrue(kind, "The peer may run pods in this cluster. Only this direction is agreed: the peer has not invited this "+
			"cluster")
	default:
		return isTrue(kind, "The peer may run pods in this cluster")
	}
}

// acceptance is whether the two clusters have agreed to be peers, as far as that is for the peer to say.
func acceptance(peer *v1alpha1.Peer) *condition {
	const kind = v1alpha1.ConditionReady
	if len(peer.Spec.Roles) == 0 {
		return isFalse(kind, v1alpha1.ReasonDiscovered, "The cluster was only found in the network: to become its peer, set "+
			"spec.roles, and join it or invite it")
	}
	if !peer.HasRole(v1alpha1.RoleConsumer) {
		return isTrue(kind, "")
	}
	joined := said(peer, v1alpha1.ConditionJoined)
	if joined == nil {
		return isFalse(kind, v1alpha1.ReasonPending, "The invitation for the peer was not looked at yet")
	}
	return joined.asReady()
}

// provision is whether our pods can run at the peer.
func provision(o *observation, others []*condition) *condition {
	const kind = v1alpha1.ConditionReady
	peer := o.peer
	if session := said(peer, v1alpha1.ConditionSession); session != nil && broken(session) {
		return session.asReady()
	}
	// Authenticated comes first where both fail, since it says what to do about credentials.
	for _, found := range []*condition{firstFalse(others), firstNotTrue(others)} {
		if found != nil {
			return found.asReady()
		}
	}
	if o.addresses.problem != "" {
		return isFalse(kind, v1alpha1.ReasonNoAddressRange, "%s", o.addresses.problem)
	}
	ad := said(peer, v1alpha1.ConditionAdvertised)
	switch {
	case ad == nil:
		return isFalse(kind, v1alpha1.ReasonNoAdvertisement, "The peer has not advertised anything to this cluster yet")
	case !ad.ok():
		return ad.asReady()
	case peer.Agentless():
		return &condition{kind, metav1.ConditionTrue, v1alpha1.ReasonAgentless, agentlessLimits}
	default:
		return isTrue(kind, "Pods of this cluster may run at the peer")
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
		return isTrue(v1alpha1.ConditionReady, c.message)
	}
	return isFalse(v1alpha1.ConditionReady, c.reason, "%s", c.message)
}

func firstFalse(conditions []*condition) *condition {
	return first(conditions, func(c *condition) bool { return c.status == metav1.ConditionFalse })
}

func firstNotTrue(conditions []*condition) *condition {
	return first(conditions, func(c *condition) bool { return !c.ok() })
}

func first(conditions []*condition, wanted func(*condition) bool) *condition {
	at := slices.IndexFunc(conditions, wanted)
	if at < 0 {
		return nil
	}
	return conditions[at]
}

// tenancy is whether the tenant namespace is as it should be, as a condition Ready.
func tenancy(o *observation) *condition {
	const kind = v1alpha1.ConditionReady
	namespace := v1alpha1.TenantNamespace(o.peer.Name)
	switch {
	case o.contact.obstacle.theirs:
		return isFalse(kind, v1alpha1.ReasonParting, "The two clusters part, and this one waits for %s. If the peer is gone for "+
			"ever, run `kubectl hanse unpeer %s --force`", o.contact.obstacle.thing, o.peer.Name)
	case o.contact.obstacle.stands():
		return isFalse(kind, v1alpha1.ReasonParting, "The two clusters part, and this one waits for %s", o.contact.obstacle.thing)
	case o.tenant == tenantTaken:
		return isFalse(kind, v1alpha1.ReasonNamespaceTaken, "Namespace %s exists and was not made for this Peer: delete it, or "+
			"delete this Peer and make one of another name", namespace)
	case o.tenant == tenantTerminating:
		return isFalse(kind, v1alpha1.ReasonNamespaceTerminating, "Namespace %s is being deleted; Hanse makes it again after that",
			namespace)
	case o.tenant == tenantUnsettled:
		return isFalse(kind, v1alpha1.ReasonPending, "Namespace %s is being prepared", namespace)
	case o.tenant == tenantFailed:
		return isFalse(kind, v1alpha1.ReasonPending, "Namespace %s could not be prepared: %v", namespace, o.tenantErr)
	default:
		return isTrue(kind, "")
	}
}
