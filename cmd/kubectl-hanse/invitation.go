package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Bounds of the API, checked here so that they are told before anything is written.
const (
	maxPeerName   = 40
	maxServers    = 8
	maxTimeToLive = 168 * time.Hour
)

var errJoined = errors.New("it has joined already")

// An invitationRequest is what an administrator asks of an invitation.
type invitationRequest struct {
	Mutual     bool             // role Provider too
	Renew      bool             // another one, whatever became of the last
	NewKey     bool             // the peer may have another key than before
	TimeToLive *metav1.Duration // nil: as before
	Servers    []string         // none: as before
}

// check reports values that the API would refuse.
func (r invitationRequest) check() error {
	if r.TimeToLive != nil && (r.TimeToLive.Duration < time.Second || r.TimeToLive.Duration > maxTimeToLive) {
		return fmt.Errorf("--ttl is between 1s and %s, not %s", "168h", r.TimeToLive.Duration)
	}
	return checkServers(r.Servers)
}

func checkServers(servers []string) error {
	if len(servers) > maxServers {
		return fmt.Errorf("--server may be given at most %d times", maxServers)
	}
	for _, server := range servers {
		if !isServer(server) {
			return fmt.Errorf("--server is an address such as https://203.0.113.7:6443, not %q", server)
		}
	}
	return nil
}

func isServer(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

func checkPeerName(name string) error {
	if len(name) > maxPeerName || len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("%q is no name for a peer: it is a DNS label of at most %d characters, such as lubeck", name, maxPeerName)
	}
	return nil
}

// allowed reports whether the peer may be invited.
func (r invitationRequest) allowed(peer *v1alpha1.Peer) error {
	switch {
	case !peer.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted: try again when it is gone")
	case peer.Agentless():
		return errors.New("it is agentless: no Hanse runs there that could be invited")
	case !r.renews() && meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined):
		return fmt.Errorf("%w: --renew makes a new invitation for the same peer, whose pods stay; to run pods in it as well, "+
			"have its administrator run `kubectl hanse invite` there and join here", errJoined)
	default:
		return nil
	}
}

// renews reports whether another invitation is to be made in any case. A new key is of use only with one.
func (r invitationRequest) renews() bool { return r.Renew || r.NewKey }

// put makes the Peer ask for the invitation. The one that lies in the Secret, which may be nil, stays if it can still be
// used and is as it should be.
func (r invitationRequest) put(peer *v1alpha1.Peer, secret *corev1.Secret, now time.Time) {
	before := peer.DeepCopy()
	addRole(peer, v1alpha1.RoleConsumer)
	if r.Mutual {
		addRole(peer, v1alpha1.RoleProvider)
	}
	if peer.Spec.Invitation == nil {
		peer.Spec.Invitation = &v1alpha1.PeerInvitation{}
	}
	if r.TimeToLive != nil {
		peer.Spec.Invitation.TimeToLive = r.TimeToLive
	}
	if len(r.Servers) > 0 {
		peer.Spec.Invitation.Servers = r.Servers
	}
	if r.renews() || !equality.Semantic.DeepEqual(before.Spec, peer.Spec) || !usable(before, secret, now) {
		peer.Spec.Invitation.Serial = lastSerial(before, secret) + 1
	}
	if r.NewKey {
		peer.Spec.PublicKey = ""
	}
}

// spent reports whether somebody has used the invitation, be it in vain.
func spent(peer *v1alpha1.Peer) bool {
	joined := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionJoined)
	return joined != nil && joined.Reason != v1alpha1.ReasonInvited && joined.Reason != v1alpha1.ReasonPending
}

// usable reports whether the invitation that the Peer asks for can be used, or is still to be made.
func usable(peer *v1alpha1.Peer, secret *corev1.Secret, now time.Time) bool {
	if secret == nil {
		made := peer.Status.Invitation != nil && peer.Status.Invitation.Serial >= peer.Spec.Invitation.Serial
		return !made
	}
	if serialOf(secret) != peer.Spec.Invitation.Serial {
		return serialOf(secret) < peer.Spec.Invitation.Serial
	}
	if len(secret.Data[v1alpha1.InvitationToken]) > 0 && spent(peer) {
		return false
	}
	expires, err := time.Parse(time.RFC3339, secret.Annotations[v1alpha1.AnnotationExpires])
	return err != nil || expires.After(now)
}

func lastSerial(peer *v1alpha1.Peer, secret *corev1.Secret) int64 {
	last := int64(0)
	if peer.Spec.Invitation != nil {
		last = peer.Spec.Invitation.Serial
	}
	if peer.Status.Invitation != nil {
		last = max(last, peer.Status.Invitation.Serial)
	}
	if secret != nil {
		last = max(last, serialOf(secret))
	}
	return last
}

func serialOf(secret *corev1.Secret) int64 {
	serial, err := strconv.ParseInt(secret.Annotations[v1alpha1.AnnotationSerial], 10, 64)
	if err != nil {
		return -1
	}
	return serial
}
