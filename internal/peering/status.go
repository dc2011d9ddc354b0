package peering

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// facts are what one look at a peer found.
type facts struct {
	ours      string // version of Hanse here
	tenant    tenantState
	tenantErr error
	probe     probe
	addresses assignment
	waitsFor  string // what a deleted Peer waits for
}

// A condition is a metav1.Condition without what the API adds.
type condition struct {
	kind            string
	status          metav1.ConditionStatus
	reason, message string
}

func (c condition) ok() bool { return c.status == metav1.ConditionTrue }

func isTrue(kind, message string) condition {
	return condition{kind, metav1.ConditionTrue, v1alpha1.ReasonReady, message}
}

func isFalse(kind, reason, message string, args ...any) condition {
	return condition{kind, metav1.ConditionFalse, reason, fmt.Sprintf(message, args...)}
}

func unknown(kind, reason, message string, args ...any) condition {
	return condition{kind, metav1.ConditionUnknown, reason, fmt.Sprintf(message, args...)}
}

// conditionsOf turns facts into the conditions of the Peer, but for Advertised, which is another's.
func conditionsOf(peer *v1alpha1.Peer, f facts) []condition {
	conditions := []condition{
		reachable(peer, f), authenticated(peer, f), compatibility(peer, f), connected(peer),
	}
	return append(conditions, readiness(peer, f, conditions[:3]))
}

func reachable(peer *v1alpha1.Peer, f facts) condition {
	const kind = v1alpha1.ConditionReachable
	if c, open := unasked(kind, peer, f); open {
		return c
	}
	err := f.probe.err
	switch {
	case f.probe.link == nil:
		return unknown(kind, credentialsReason(err), "The peer was not contacted: see condition Authenticated")
	case errors.Is(err, peers.ErrUnreachable):
		return isFalse(kind, v1alpha1.ReasonUnreachable, "%s does not answer (%s): check that it runs and that this cluster "+
			"may connect to it. Hanse tries again", f.probe.link.Server(), cause(err))
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return isFalse(kind, v1alpha1.ReasonCredentialsInvalid, "What answers at %s has a certificate that the kubeconfig "+
			"in Secret %s does not trust: check server and certificate-authority-data there",
			f.probe.link.Server(), linkSecret(peer))
	default:
		return isTrue(kind, "The peer's API server answers")
	}
}

func authenticated(peer *v1alpha1.Peer, f facts) condition {
	const kind = v1alpha1.ConditionAuthenticated
	if c, open := unasked(kind, peer, f); open {
		return c
	}
	if f.probe.err != nil {
		return unauthenticated(peer, f.probe)
	}
	if f.probe.hello.ClusterID != peer.Spec.ClusterID {
		return isFalse(kind, v1alpha1.ReasonClusterIDMismatch, "The cluster that answers calls itself %q, but this Peer is "+
			"%q: the credentials in Secret %s lead to another cluster; replace them, or make a Peer for that cluster",
			f.probe.hello.ClusterID, peer.Spec.ClusterID, linkSecret(peer))
	}
	return isTrue(kind, "The peer knows this cluster, and is the cluster that this Peer names")
}

func unauthenticated(peer *v1alpha1.Peer, p probe) condition {
	const kind = v1alpha1.ConditionAuthenticated
	secret, err := linkSecret(peer), p.err
	switch {
	case errors.Is(err, peers.ErrCredentialsMissing):
		return isFalse(kind, v1alpha1.ReasonCredentialsMissing, "Secret %s with the credentials for the peer does not exist: "+
			"run `kubectl hanse peer`, or put a kubeconfig under its key %s", secret, v1alpha1.LinkSecretKey)
	case errors.Is(err, peers.ErrCredentialsInvalid) && p.link == nil:
		return isFalse(kind, v1alpha1.ReasonCredentialsInvalid, "The peer cannot be contacted: %v. Peer with it again, or put "+
			"another kubeconfig there", err)
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return unknown(kind, v1alpha1.ReasonCredentialsInvalid, "What answers is not trusted: see condition Reachable")
	case errors.Is(err, peers.ErrUnreachable):
		return unknown(kind, v1alpha1.ReasonUnreachable, "The peer's API server does not answer")
	case errors.Is(err, peers.ErrUnauthorized):
		return isFalse(kind, v1alpha1.ReasonUnauthorized, "The peer's API server does not accept the credentials in Secret %s: "+
			"they ended or were taken back; peer with it again for new ones", secret)
	case apierrors.IsNotFound(err):
		return isFalse(kind, v1alpha1.ReasonPending, "The peer has not introduced itself: check that Hanse runs there and "+
			"has a Peer with role Consumer for this cluster")
	case errors.Is(err, peers.ErrMalformed), errors.Is(err, peers.ErrTooLarge):
		return isFalse(kind, v1alpha1.ReasonMalformed, "The answer of the peer makes no sense: check that the server in "+
			"Secret %s is a Kubernetes API server, and the version of Hanse there", secret)
	default:
		return unknown(kind, v1alpha1.ReasonPending, "The peer could not be asked: %v", err)
	}
}

func compatibility(peer *v1alpha1.Peer, f facts) condition {
	const kind = v1alpha1.ConditionCompatible
	if c, open := unasked(kind, peer, f); open {
		return c
	}
	if !authenticated(peer, f).ok() {
		return unknown(kind, v1alpha1.ReasonPending, "The peer's version is not known: see condition Authenticated")
	}
	theirs := f.probe.hello.Version
	if !compatible(f.ours, theirs) {
		return isFalse(kind, v1alpha1.ReasonIncompatibleVersion, "The peer runs Hanse %q and this cluster %q: the major "+
			"versions must be the same and the minor ones at most one apart; upgrade the older one", theirs, f.ours)
	}
	return isTrue(kind, "The versions of Hanse on both sides understand each other")
}

func connected(peer *v1alpha1.Peer) condition {
	message := "There is no network between the pods of the two clusters yet"
	if peer.HasRole(v1alpha1.RoleProvider) {
		message += ": the addresses of pods that run at the peer do not route"
	}
	return isFalse(v1alpha1.ConditionConnected, v1alpha1.ReasonNoNetworkFabric, "%s", message)
}

// unasked returns the condition of a peer that nothing was asked of.
func unasked(kind string, peer *v1alpha1.Peer, f facts) (condition, bool) {
	switch {
	case f.waitsFor != "":
		return unknown(kind, v1alpha1.ReasonPending, "The Peer is being deleted"), true
	case !peer.HasRole(v1alpha1.RoleProvider):
		return unknown(kind, v1alpha1.ReasonNotConsumed, "This cluster consumes nothing from the peer and does not "+
			"contact it"), true
	case f.probe.link == nil && f.probe.err == nil:
		return unknown(kind, v1alpha1.ReasonPending, "The peer was not contacted yet"), true
	default:
		return condition{}, false
	}
}

// readiness sums up the others. What a peer must be for us depends on its roles.
func readiness(peer *v1alpha1.Peer, f facts, others []condition) condition {
	const kind = v1alpha1.ConditionReady
	if c := tenancy(peer, f); !c.ok() {
		return c
	}
	if !peer.HasRole(v1alpha1.RoleProvider) {
		return isTrue(kind, "The peer may run pods in this cluster")
	}
	// Authenticated comes first where both fail, since it says what to do about credentials.
	for _, c := range []condition{others[1], others[0], others[2]} {
		if c.status == metav1.ConditionFalse {
			return isFalse(kind, c.reason, "%s", c.message)
		}
	}
	for _, c := range others {
		if !c.ok() {
			return isFalse(kind, c.reason, "%s", c.message)
		}
	}
	if f.addresses.problem != "" {
		return isFalse(kind, v1alpha1.ReasonNoAddressRange, "%s", f.addresses.problem)
	}
	if ad := advertised(peer); ad == nil {
		return isFalse(kind, v1alpha1.ReasonNoAdvertisement, "The peer has not advertised anything to this cluster yet")
	} else if !ad.ok() {
		return isFalse(kind, ad.reason, "%s", ad.message)
	}
	return isTrue(kind, "Pods of this cluster may run at the peer")
}

// tenancy is whether the tenant namespace is as it should be, as a condition Ready.
func tenancy(peer *v1alpha1.Peer, f facts) condition {
	const kind = v1alpha1.ConditionReady
	namespace := v1alpha1.TenantNamespace(peer.Name)
	switch {
	case f.waitsFor != "":
		return isFalse(kind, v1alpha1.ReasonNamespaceTerminating, "The Peer is being deleted and waits for %s to go", f.waitsFor)
	case f.tenant == tenantTaken:
		return isFalse(kind, v1alpha1.ReasonNamespaceTaken, "Namespace %s exists and was not made for this Peer: delete it, or "+
			"delete this Peer and make one of another name", namespace)
	case f.tenant == tenantTerminating:
		return isFalse(kind, v1alpha1.ReasonNamespaceTerminating, "Namespace %s is being deleted; Hanse makes it again after that",
			namespace)
	case f.tenant == tenantUnsettled:
		return isFalse(kind, v1alpha1.ReasonPending, "Namespace %s is being prepared", namespace)
	case f.tenant == tenantFailed:
		return isFalse(kind, v1alpha1.ReasonPending, "Namespace %s could not be prepared: %v", namespace, f.tenantErr)
	default:
		return isTrue(kind, "")
	}
}

func linkSecret(peer *v1alpha1.Peer) string {
	return v1alpha1.TenantNamespace(peer.Name) + "/" + v1alpha1.LinkSecret
}

func credentialsReason(err error) string {
	switch {
	case errors.Is(err, peers.ErrCredentialsMissing):
		return v1alpha1.ReasonCredentialsMissing
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return v1alpha1.ReasonCredentialsInvalid
	default:
		return v1alpha1.ReasonPending
	}
}

// cause says in a few words why there was no answer. The error itself names ports and times that change with every
// attempt, and would have the status written each time.
func cause(err error) string {
	var (
		errno   syscall.Errno
		dns     *net.DNSError
		network net.Error
		status  apierrors.APIStatus
	)
	switch {
	case errors.As(err, &dns):
		return "its name cannot be resolved"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &status):
		return fmt.Sprintf("status %d", status.Status().Code)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timed out"
	default:
		return "the connection broke"
	}
}
