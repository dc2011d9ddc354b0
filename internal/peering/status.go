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
	claim     *v1alpha1.PeeringClaim  // of a consumer, nil if there is none
	offer     *v1alpha1.Advertisement // our copy of a provider's, nil if there is none
	oneWay    bool                    // the peer is our consumer and has not invited us
	addresses assignment
	waitsFor  obstacle // what a deleted Peer waits for
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

// conditionsOf turns facts into the conditions of the Peer that are ours.
func conditionsOf(peer *v1alpha1.Peer, f *facts) []condition {
	conditions := []condition{authenticated(peer, f), reachable(peer, f), compatibility(peer, f)}
	return append(conditions, readiness(peer, f, conditions), connected(peer))
}

func reachable(peer *v1alpha1.Peer, f *facts) condition {
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

func authenticated(peer *v1alpha1.Peer, f *facts) condition {
	const kind = v1alpha1.ConditionAuthenticated
	if c, open := unasked(kind, peer, f); open {
		return c
	}
	if f.probe.err != nil {
		return unauthenticated(peer, f.probe)
	}
	if peer.Agentless() {
		return isTrue(kind, "The peer knows this cluster, and lets it run pods in the namespaces that spec.namespaces names")
	}
	return identified(peer, f.probe.hello)
}

// identified is whether the cluster that answers is the one that the Peer names.
func identified(peer *v1alpha1.Peer, hello peers.Hello) condition {
	const kind = v1alpha1.ConditionAuthenticated
	switch {
	case peer.Spec.ClusterID == "":
		return isFalse(kind, v1alpha1.ReasonPending, "The cluster that answers calls itself %q, and this Peer does not say which "+
			"it should be: if that is the one, set spec.clusterID to it", hello.ClusterID)
	case hello.ClusterID != peer.Spec.ClusterID:
		return isFalse(kind, v1alpha1.ReasonClusterIDMismatch, "The cluster that answers calls itself %q, but this Peer is "+
			"%q: the credentials in Secret %s lead to another cluster; replace them, or make a Peer for that cluster",
			hello.ClusterID, peer.Spec.ClusterID, linkSecret(peer))
	case peer.Spec.PublicKey != "" && hello.PublicKey != "" && hello.PublicKey != peer.Spec.PublicKey:
		return isFalse(kind, v1alpha1.ReasonKeyMismatch, "The cluster that answers has the id of this Peer and another key, %s: "+
			"ask its administrator whether it was installed anew. If so, set spec.publicKey to that; if not, it is an impostor",
			hello.PublicKey)
	default:
		return isTrue(kind, "The peer knows this cluster, and is the cluster that this Peer names")
	}
}

func unauthenticated(peer *v1alpha1.Peer, p probe) condition {
	const kind = v1alpha1.ConditionAuthenticated
	secret, err := linkSecret(peer), p.err
	switch {
	case errors.Is(err, peers.ErrCredentialsMissing):
		return isFalse(kind, v1alpha1.ReasonCredentialsMissing, "Secret %s with the credentials for the peer does not exist: "+
			"ask the peer's administrator for an invitation and run `kubectl hanse join`, or put a kubeconfig under its key %s",
			secret, v1alpha1.LinkSecretKey)
	case errors.Is(err, peers.ErrCredentialsInvalid) && p.link == nil:
		return isFalse(kind, v1alpha1.ReasonCredentialsInvalid, "The peer cannot be contacted: %v. Peer with it again, or put "+
			"another kubeconfig there", err)
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return unknown(kind, v1alpha1.ReasonCredentialsInvalid, "What answers is not trusted: see condition Reachable")
	case errors.Is(err, peers.ErrUnreachable):
		return unknown(kind, v1alpha1.ReasonUnreachable, "The peer's API server does not answer")
	case errors.Is(err, peers.ErrUnauthorized):
		return isFalse(kind, v1alpha1.ReasonUnauthorized, "The peer's API server does not accept the credentials in Secret %s: "+
			"they ended or were taken back. Have the peer's administrator run `kubectl hanse invite --renew`, and join with "+
			"that, or put other credentials there",
			secret)
	case errors.Is(err, errLacking):
		return isFalse(kind, v1alpha1.ReasonForbidden, "The peer does not give what it takes to run pods there: %v. Have its "+
			"administrator bind a role with that to the user of Secret %s, or leave the namespace out of spec.namespaces",
			err, secret)
	case errors.Is(err, peers.ErrForbidden):
		return isFalse(kind, v1alpha1.ReasonForbidden, "The peer knows this cluster and lets it do nothing: it has suspended us; "+
			"ask its administrator. What runs there stays")
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

func connected(peer *v1alpha1.Peer) condition {
	if peer.Agentless() {
		return isFalse(v1alpha1.ConditionConnected, v1alpha1.ReasonAgentless, "The peer runs no Hanse, so there will be no network "+
			"between its pods and ours: the addresses of pods that run there are not shown")
	}
	message := "There is no network between the pods of the two clusters yet"
	if peer.HasRole(v1alpha1.RoleProvider) {
		message += ": the addresses of pods that run at the peer do not route"
	}
	return isFalse(v1alpha1.ConditionConnected, v1alpha1.ReasonNoNetworkFabric, "%s", message)
}

// unasked returns the condition of a peer that nothing was asked of.
func unasked(kind string, peer *v1alpha1.Peer, f *facts) (condition, bool) {
	switch {
	case f.waitsFor.stands():
		return unknown(kind, v1alpha1.ReasonPending, "The Peer is being deleted"), true
	case !peer.HasRole(v1alpha1.RoleProvider):
		return unknown(kind, v1alpha1.ReasonNotConsumed, "This cluster consumes nothing from the peer and does not "+
			"contact it"), true
	case f.oneWay:
		return unknown(kind, v1alpha1.ReasonNotInvited, "The peer has not invited this cluster, which therefore does not "+
			"contact it"), true
	case f.probe.link == nil && f.probe.err == nil:
		return unknown(kind, v1alpha1.ReasonPending, "The peer was not contacted yet"), true
	default:
		return condition{}, false
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
