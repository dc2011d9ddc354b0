// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

func reachable(o *observation) *condition {
	peer := o.peer
	if c := unasked(o); c != nil {
		return c
	}
	err := o.contact.probe.err
	switch {
	case o.contact.probe.link == nil:
		return unknown(unauthenticated(peer, &o.contact.probe).reason, "The peer was not contacted: see condition Authenticated")
	case errors.Is(err, peers.ErrUnreachable) && hasNoWay(err):
		return isFalse(v1alpha1.ReasonUnreachable, "%s does not answer (%s). %s. Hanse tries again", o.contact.probe.link.Server(), cause(err), noWay)
	case errors.Is(err, peers.ErrUnreachable):
		return isFalse(v1alpha1.ReasonUnreachable, "%s does not answer (%s): check that it runs and that this cluster "+
			"may connect to it. Hanse tries again", o.contact.probe.link.Server(), cause(err))
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return isFalse(v1alpha1.ReasonCredentialsInvalid, "What answers at %s has a certificate that the kubeconfig "+
			"in Secret %s does not trust: check server and certificate-authority-data there",
			o.contact.probe.link.Server(), secretName(peer, v1alpha1.LinkSecret))
	default:
		return isTrue("The peer's API server answers")
	}
}

func authenticated(o *observation) *condition {
	if c := second(o); c != nil {
		return c
	}
	if c := unasked(o); c != nil {
		return c
	}
	if o.contact.probe.err != nil {
		return unauthenticated(o.peer, &o.contact.probe)
	}
	if o.peer.Agentless() && o.contact.probe.asked != o.peer.Protocol() {
		return unknown(v1alpha1.ReasonPending, "The peer was not asked yet for the rights that spec.copies takes")
	}
	if !o.peer.Protocol().Identity {
		return isTrue("The peer knows this cluster, and lets it run pods in the namespaces that spec.namespaces names")
	}
	return identified(o.peer, o.contact.probe.info)
}

// identified is whether the cluster that answers is the one that the Peer names.
func identified(peer *v1alpha1.Peer, info peers.ClusterInfo) *condition {
	switch {
	case peer.Spec.ClusterID == "":
		return isFalse(v1alpha1.ReasonPending, "The cluster that answers calls itself %q, and this Peer does not say which "+
			"it should be: if that is the one, set spec.clusterID to it", info.ClusterID)
	case info.ClusterID != peer.Spec.ClusterID:
		return isFalse(v1alpha1.ReasonClusterIDMismatch, "The cluster that answers calls itself %q, but this Peer is "+
			"%q: the credentials in Secret %s lead to another cluster; replace them, or make a Peer for that cluster",
			info.ClusterID, peer.Spec.ClusterID, secretName(peer, v1alpha1.LinkSecret))
	case peer.Spec.PublicKey != "" && info.PublicKey != "" && info.PublicKey != peer.Spec.PublicKey:
		return isFalse(v1alpha1.ReasonKeyMismatch, "The cluster that answers has the id of this Peer and another key, %s: "+
			"ask its administrator whether it was installed anew. If so, set spec.publicKey to that; if not, it is an impostor",
			info.PublicKey)
	default:
		return isTrue("The peer knows this cluster, and is the cluster that this Peer names")
	}
}

func unauthenticated(peer *v1alpha1.Peer, p *probe) *condition {
	secret, err := secretName(peer, v1alpha1.LinkSecret), p.err
	switch {
	case errors.Is(err, peers.ErrCredentialsMissing):
		return isFalse(v1alpha1.ReasonCredentialsMissing, "Secret %s with the credentials for the peer does not exist: "+
			"ask the peer's administrator for an invitation and run `kubectl hanse join`, or put a kubeconfig under its key %s",
			secret, v1alpha1.LinkSecretKey)
	case errors.Is(err, peers.ErrCredentialsInvalid) && p.link == nil:
		return isFalse(v1alpha1.ReasonCredentialsInvalid, "The peer cannot be contacted: %v. Peer with it again, or put "+
			"another kubeconfig there", err)
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return unknown(v1alpha1.ReasonCredentialsInvalid, "What answers is not trusted: see condition Reachable")
	case errors.Is(err, peers.ErrUnreachable):
		return unknown(v1alpha1.ReasonUnreachable, "The peer's API server does not answer")
	case errors.Is(err, peers.ErrUnauthorized):
		return isFalse(v1alpha1.ReasonUnauthorized, "The peer's API server does not accept the credentials in Secret %s: "+
			"they ended or were taken back. Have the peer's administrator run `kubectl hanse invite --renew`, and join with "+
			"that, or put other credentials there",
			secret)
	case errors.Is(err, errLacking):
		return isFalse(v1alpha1.ReasonForbidden, "The peer does not give what it takes to run pods there: %v. Have its "+
			"administrator bind a role with that to the user of Secret %s, or leave the namespace out of spec.namespaces. Where "+
			"spec.copies is None, no rights to configmaps and secrets are needed", err, secret)
	case errors.Is(err, peers.ErrForbidden):
		return isFalse(v1alpha1.ReasonForbidden, "The peer knows this cluster and lets it do nothing: it has suspended us; "+
			"ask its administrator. What runs there stays")
	case apierrors.IsNotFound(err):
		return isFalse(v1alpha1.ReasonPending, "The peer has not introduced itself: check that Hanse runs there and "+
			"has a Peer with role Consumer for this cluster")
	case errors.Is(err, peers.ErrMalformed), errors.Is(err, peers.ErrTooLarge):
		return isFalse(v1alpha1.ReasonMalformed, "The answer of the peer makes no sense: check that the server in "+
			"Secret %s is a Kubernetes API server, and the version of Hanse there", secret)
	default:
		return unknown(v1alpha1.ReasonPending, "The peer could not be asked: %v", err)
	}
}

// withinBudget is whether the peer sends no more than is taken from one peer. Each process that talks to the peer counts for
// itself: the manager knows, and `hanse kubelet` says so in the virtual node.
func withinBudget(o *observation) *condition {
	if c := unasked(o); c != nil {
		return c
	}
	if o.overBudget != nil {
		return isFalse(v1alpha1.ReasonOverBudget, "Nothing more is taken from the peer: %v. Hanse tries again", o.overBudget)
	}
	if o.node != nil {
		if c := v1alpha1.CutOff(o.node); c != nil && c.Reason == v1alpha1.ReasonOverBudget {
			return isFalse(v1alpha1.ReasonOverBudget, "%s. Hanse tries again", c.Message)
		}
	}
	return isTrue("The peer sends no more than this cluster takes from one peer")
}

// unasked returns the condition of a peer that nothing was asked of, nil for others.
func unasked(o *observation) *condition {
	p := &o.contact.probe
	switch {
	case o.deleted():
		return unknown(v1alpha1.ReasonPending, "The Peer is being deleted")
	case !o.peer.HasRole(v1alpha1.RoleProvider):
		return unknown(v1alpha1.ReasonNotConsumed, "This cluster consumes nothing from the peer and does not "+
			"contact it")
	case o.namesake != "":
		return unknown(v1alpha1.ReasonClusterIDTaken, "The peer is not contacted: see condition Authenticated")
	case isOneWay(o):
		return unknown(v1alpha1.ReasonNotInvited, "The peer has not invited this cluster, which therefore does not "+
			"contact it")
	case p.link == nil && p.err == nil:
		return unknown(v1alpha1.ReasonPending, "The peer was not contacted yet")
	default:
		return nil
	}
}

// isOneWay reports whether only the peer has been invited, and not we.
func isOneWay(o *observation) bool {
	joined, ours := said(o.peer, v1alpha1.ConditionJoined), o.contact.session
	return o.peer.HasRole(v1alpha1.RoleConsumer) && o.peer.HasRole(v1alpha1.RoleProvider) && joined != nil && joined.ok() &&
		errors.Is(o.contact.probe.err, peers.ErrCredentialsMissing) && ours != nil && ours.offer == nil
}

// secretName names a Secret of the tenant namespace in messages.
func secretName(peer *v1alpha1.Peer, name string) string {
	return v1alpha1.TenantNamespace(peer.Name) + "/" + name
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

// noWay is what is likely wrong where hasNoWay, and what to do.
const noWay = "Nothing leads from here to the address of the peer's API server: one of the two clusters may have IPv4 alone, and the other " +
	"IPv6. Run `kubectl hanse invite NAME --renew --server URL` at the peer, with a server that this cluster reaches, and join with what it prints"

// hasNoWay reports whether this machine has no route to a peer, or no address of its family.
func hasNoWay(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// apiVersions are the versions of Hanse's API that this cluster speaks.
var apiVersions = []string{v1alpha1.GroupVersion.Version}

// compatible reports whether two versions of Hanse understand each other: the same ones do, and those of one major
// version whose minor versions are at most one apart. A build without a version, "dev", knows only its like.
func compatible(a, b string) bool {
	if a == b {
		return true
	}
	left, errLeft := version.ParseSemantic(a)
	right, errRight := version.ParseSemantic(b)
	if errLeft != nil || errRight != nil {
		return false
	}
	apart := int64(left.Minor()) - int64(right.Minor()) //nolint:gosec // minor versions are small
	return left.Major() == right.Major() && -1 <= apart && apart <= 1
}

// commonAPI reports whether both sides speak one version of Hanse's API. A peer that does not tell speaks the first.
func commonAPI(theirs []string) bool {
	if theirs == nil {
		theirs = []string{"v1alpha1"}
	}
	return slices.ContainsFunc(theirs, func(v string) bool { return slices.Contains(apiVersions, strings.TrimSpace(v)) })
}

// software is what a peer runs, as it says.
type software struct {
	version     string
	apiVersions []string
}

// theirSoftware returns what the peer runs. One that we consume from introduces itself, and a mere consumer has written
// it into its claim.
func theirSoftware(o *observation) (software, bool) {
	if info := o.contact.probe.info; unasked(o) == nil {
		return software{info.Version, info.APIVersions}, authenticated(o).ok()
	}
	if o.peer.HasRole(v1alpha1.RoleConsumer) && accepted(o.claim) && o.claim.Spec.Version != "" {
		return software{version: o.claim.Spec.Version}, true
	}
	return software{}, false
}

// compatibility is whether what both sides run fits together. It is told and nothing more: what runs keeps running.
func compatibility(o *observation) *condition {
	theirs, known := theirSoftware(o)
	if known && !o.peer.Protocol().Identity {
		return isTrue("The peer runs no Hanse, so there are no versions to compare")
	}
	if !known {
		if c := unasked(o); c != nil {
			return c
		}
		return unknown(v1alpha1.ReasonPending, "The peer's version is not known: see condition Authenticated")
	}
	if !compatible(o.config.Version, theirs.version) {
		return isFalse(v1alpha1.ReasonIncompatibleVersion, "The peer runs Hanse %q and this cluster %q: the major "+
			"versions must be the same and the minor ones at most one apart; upgrade the older one. What runs keeps running",
			theirs.version, o.config.Version)
	}
	if !commonAPI(theirs.apiVersions) {
		return isFalse(v1alpha1.ReasonIncompatibleAPI, "The peer speaks version %s of Hanse's API and this cluster %s: "+
			"upgrade the older one. What runs keeps running", strings.Join(theirs.apiVersions, ", "), strings.Join(apiVersions, ", "))
	}
	return isTrue("The versions of Hanse on both sides understand each other")
}

// advertised is whether an offer of a provider is in use. The copy that this cluster keeps of the offer says so.
func advertised(o *observation) *condition {
	if !o.peer.HasRole(v1alpha1.RoleProvider) {
		return nil
	}
	answer := verdictOf(o.offer)
	switch {
	case o.peer.Spec.ClusterID == o.config.ClusterID:
		return isFalse(v1alpha1.ReasonClusterIDMismatch, "The peer has the id of this very cluster")
	case answer == nil && o.contact.probe.link == nil:
		return isFalse(v1alpha1.ReasonNoAdvertisement, "There is no link to the peer: see condition Reachable")
	case answer == nil:
		return isFalse(v1alpha1.ReasonNoAdvertisement, "The peer does not advertise anything to this cluster, or its "+
			"advertisement was not read yet")
	case !answer.ok():
		return &condition{answer.status, answer.reason, answer.message}
	default:
		closed := closedMessages[o.offer.Spec.Phase]
		return &condition{answer.status, answer.reason, cmp.Or(closed, answer.message, "The advertisement is used")}
	}
}

// verdictOf returns what our copy of an advertisement says of it, or nil.
func verdictOf(ad *v1alpha1.Advertisement) *condition {
	if ad == nil {
		return nil
	}
	return conditionOf(ad.Status.Conditions, v1alpha1.ConditionAccepted)
}

// closedMessages say why an offer in use is for no more pods.
var closedMessages = map[v1alpha1.OfferPhase]string{
	v1alpha1.OfferCordoned: "The peer takes no more pods",
	v1alpha1.OfferDraining: "The peer takes no more pods and asks us to move away those that it has",
	v1alpha1.OfferLeaving:  "The peer parts from us",
}
