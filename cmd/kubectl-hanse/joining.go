package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A joining is the use of an invitation.
type joining struct {
	text       string // the invitation as it was given
	invitation *trust.Invitation
	as         string // what the provider is to be called here; by default its cluster id
	mutual     bool   // the administrator wants both directions
	servers    []string
	system     string // the namespace of Hanse
	now        time.Time
	report     func(format string, args ...any)
}

// nameOver is what the provider calls the cluster that it has invited.
func nameOver(invitation *trust.Invitation) string {
	return strings.TrimPrefix(invitation.Namespace, v1alpha1.TenantNamespacePrefix)
}

func (j *joining) name() string { return orElse(j.as, j.invitation.ClusterID) }

// mutually reports whether both sides want both directions. On one side only, it is one direction.
func (j *joining) mutually() bool { return j.mutual && j.invitation.Mutual() }

// objects are all that it takes to use the invitation, for a cluster that does not know the provider yet.
func (j *joining) objects() []client.Object {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{
		Name: j.name(), Annotations: map[string]string{v1alpha1.AnnotationJoin: j.invitation.ID},
	}}
	j.put(peer, nil)
	return []client.Object{peer, tenantNamespace(peer), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(j.name()), Name: v1alpha1.JoinSecret},
		Data:       map[string][]byte{v1alpha1.InvitationToken: []byte(j.text)},
	}}
}

// tenantNamespace is the one that the manager would make for the Peer, or takes if it is there already.
func tenantNamespace(peer *v1alpha1.Peer) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.TenantNamespace(peer.Name),
		Labels: map[string]string{
			v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: peer.Name, v1alpha1.LabelManaged: "true",
		},
	}}
	if peer.Spec.ClusterID != "" {
		ns.Labels[v1alpha1.LabelClusterID] = peer.Spec.ClusterID
	}
	return ns
}

// put makes the Peer stand for the provider. Our invitation for it, which lies in the Secret (nil if there is none), must
// be one that it can use, if there is to be one at all.
func (j *joining) put(peer *v1alpha1.Peer, back *corev1.Secret) {
	peer.Spec.ClusterID, peer.Spec.PublicKey = j.invitation.ClusterID, j.invitation.PublicKey
	addRole(peer, v1alpha1.RoleProvider)
	joined := meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined)
	if j.mutually() || j.invitation.Mutual() && peer.HasRole(v1alpha1.RoleConsumer) && !joined {
		invitationRequest{Renew: joined, Servers: j.servers}.put(peer, back, j.now)
	}
}

// allowed reports whether the Peer, which may be a new one, can stand for the provider.
func (j *joining) allowed(peer *v1alpha1.Peer) error {
	spec, offered := peer.Spec, j.invitation
	switch {
	case !peer.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted: try again when it is gone")
	case peer.Agentless():
		return errors.New("it is an agentless peer: say another name with --as")
	case spec.ClusterID != "" && spec.ClusterID != offered.ClusterID:
		return fmt.Errorf("it stands for cluster %q and the invitation is of %q: say another name with --as, or `kubectl hanse unpeer %s` first",
			spec.ClusterID, offered.ClusterID, peer.Name)
	case spec.PublicKey != "" && spec.PublicKey != offered.PublicKey:
		return fmt.Errorf("the key of the invitation is not the one that %s had when you became peers. Either somebody else "+
			"has made this invitation, or the cluster was made anew. If its administrator tells you the same key, pin it, and join again: "+
			"kubectl patch peer %s --type=merge -p '{\"spec\":{\"publicKey\":\"%s\"}}'", offered.ClusterID, peer.Name, offered.PublicKey)
	default:
		return nil
	}
}

// choose finds what the provider is called here. A cluster that is known keeps its name.
func (j *joining) choose(ctx context.Context, c client.Client) error {
	seen := take(ctx, c, scope{}, time.Time{}, partPeers)
	if err := seen.err(partPeers); err != nil {
		return err
	}
	for i := range seen.peers.Items {
		known := &seen.peers.Items[i]
		if known.Spec.ClusterID != j.invitation.ClusterID || known.Name == j.as {
			continue
		}
		if j.as != "" {
			return fmt.Errorf("cluster %q is Peer %s here already: say --as %s, or `kubectl hanse unpeer %s` first",
				j.invitation.ClusterID, known.Name, known.Name, known.Name)
		}
		j.as = known.Name
		if known.Name != j.invitation.ClusterID {
			j.report("Cluster %s is called %s here", j.invitation.ClusterID, known.Name)
		}
	}
	return nil
}

// doJoin writes the objects and waits until they have had their effect. Doing it again goes on where it was.
func doJoin(ctx context.Context, command *cobra.Command, c client.Client, j *joining, wait bool) error {
	ours, err := clusterID(ctx, c, j.system)
	if err != nil {
		return err
	}
	if ours == j.invitation.ClusterID {
		return fmt.Errorf("the invitation is of cluster %q itself, and a cluster cannot be its own peer: join in the other one (see --context)", ours)
	}
	if err := j.choose(ctx, c); err != nil {
		return err
	}
	before, err := j.write(ctx, c)
	if err != nil {
		return err
	}
	if !wait {
		return say(command, "This cluster joins %s: see `kubectl hanse status %s`.\n", j.name(), j.name())
	}
	peer, err := j.await(ctx, c, before)
	if err != nil {
		return err
	}
	return j.tell(command, ours, peer)
}

// write makes what the manager needs in order to use the invitation, and returns the Peer's condition Session from before.
// What was done before stays done: an invitation that was used is not asked for once more.
func (j *joining) write(ctx context.Context, c client.Client) (*metav1.Condition, error) {
	joined, err := j.joined(ctx, c)
	if err != nil {
		return nil, err
	}
	stored, err := j.stored(ctx, c)
	if err != nil {
		return nil, err
	}
	peer, err := j.writePeer(ctx, c, joined || stored)
	if err != nil || joined {
		return nil, err
	}
	before := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession).DeepCopy()
	if !stored {
		j.report("Waiting for the manager to prepare namespace %s", v1alpha1.TenantNamespace(j.name()))
		data := map[string][]byte{v1alpha1.InvitationToken: []byte(j.text)}
		if err := putTenantSecret(ctx, c, j.name(), v1alpha1.JoinSecret, data); err != nil {
			return nil, err
		}
	}
	// The manager does not watch the Secret. It looks at it because of the annotation.
	return before, editOfPeer(c, j.name(), func(peer *v1alpha1.Peer) error {
		metav1.SetMetaDataAnnotation(&peer.ObjectMeta, v1alpha1.AnnotationJoin, j.invitation.ID)
		return nil
	}).write(ctx, c)
}

func (j *joining) writePeer(ctx context.Context, c client.Client, known bool) (*v1alpha1.Peer, error) {
	back, err := tenantSecret(ctx, c, j.name(), v1alpha1.InvitationSecret)
	if err != nil {
		return nil, err
	}
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: j.name()}}
	return peer, write(ctx, c, peer, func() error {
		if err := j.allowed(peer); err != nil || known {
			return err
		}
		j.put(peer, back)
		return nil
	})
}

// stored reports whether the invitation lies where the manager finds it, beside what the manager has added.
func (j *joining) stored(ctx context.Context, c client.Client) (bool, error) {
	secret, err := tenantSecret(ctx, c, j.name(), v1alpha1.JoinSecret)
	return secret != nil && string(secret.Data[v1alpha1.InvitationToken]) == j.text, err
}

// joined reports whether there are credentials that the invitation has brought.
func (j *joining) joined(ctx context.Context, c client.Client) (bool, error) {
	link, err := tenantSecret(ctx, c, j.name(), v1alpha1.LinkSecret)
	return link != nil && string(link.Data[v1alpha1.LinkSecretInvitation]) == j.invitation.ID, err
}

// putTenantSecret writes a Secret as soon as the manager has made the tenant namespace.
func putTenantSecret(ctx context.Context, c client.Client, peer, name string, data map[string][]byte) error {
	namespace := v1alpha1.TenantNamespace(peer)
	err := install.Until(ctx, "the manager to prepare namespace "+namespace+" (does it run? See `kubectl hanse check`)",
		func(ctx context.Context) (bool, error) {
			ns := &corev1.Namespace{}
			if err := c.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
				return false, err
			}
			return ns.DeletionTimestamp.IsZero() && ns.Labels[v1alpha1.LabelType] == v1alpha1.TypeTenant &&
				ns.Labels[v1alpha1.LabelPeer] == peer, nil
		})
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return write(ctx, c, secret, func() error {
		secret.Data = data
		return nil
	})
}

// refusals are the reasons of condition Session with which the invitation will not be used, however long one waits.
var refusals = []string{
	v1alpha1.ReasonKeyMismatch, v1alpha1.ReasonClusterIDMismatch, v1alpha1.ReasonClusterIDTaken,
	v1alpha1.ReasonInvitationUsed, v1alpha1.ReasonInvitationInvalid, v1alpha1.ReasonInvitationExpired,
	v1alpha1.ReasonProofInvalid,
}

// await waits until the invitation was used and pods can run at the peer, and returns the Peer. before is the condition
// Session of an earlier attempt, nil if there was none: as long as it stands there, nobody has looked at this one.
func (j *joining) await(ctx context.Context, c client.Client, before *metav1.Condition) (*v1alpha1.Peer, error) {
	told := &progress{report: j.report}
	peer := &v1alpha1.Peer{}
	err := install.Until(ctx, j.name()+" to be ready", func(ctx context.Context) (bool, error) {
		read, err := readPeer(ctx, c, j.name())
		if err != nil {
			return false, err
		}
		peer = read
		joined, err := j.joined(ctx, c)
		if err != nil {
			return false, err
		}
		if !joined {
			session := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession)
			return false, j.judge(session, &before, told)
		}
		return isReady(peer, told) || !j.mutually() && isProvider(peer), nil
	})
	if err == nil {
		return peer, nil
	}
	why := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession)
	if why == nil || why.Status != metav1.ConditionFalse {
		why = meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
	}
	return nil, fmt.Errorf("%w%s (`kubectl hanse status %s` shows more)", err, because(why), j.name())
}

// judge ends the waiting when the invitation was refused.
func (j *joining) judge(session *metav1.Condition, before **metav1.Condition, told *progress) error {
	if session == nil || *before != nil && session.Reason == (*before).Reason && session.Message == (*before).Message {
		return nil
	}
	*before = nil
	if session.Status == metav1.ConditionFalse && slices.Contains(refusals, session.Reason) {
		return install.Final(fmt.Errorf("the invitation of %s was not accepted%s", j.invitation.ClusterID, because(session)))
	}
	told.tell(session.Message)
	return nil
}

// isReady reports whether the Peer, as its spec is now, is Ready, and tells why it is not.
func isReady(peer *v1alpha1.Peer, told *progress) bool {
	ready := currentCondition(peer, v1alpha1.ConditionReady)
	if ready == nil {
		return false
	}
	if ready.Status != metav1.ConditionTrue {
		told.tell(ready.Message)
	}
	return ready.Status == metav1.ConditionTrue
}

// isProvider reports whether pods can run at the peer, though it may have an invitation of ours that it has not used.
func isProvider(peer *v1alpha1.Peer) bool {
	for _, kind := range []string{v1alpha1.ConditionAuthenticated, v1alpha1.ConditionCompatible, v1alpha1.ConditionAdvertised} {
		if !meta.IsStatusConditionTrue(peer.Status.Conditions, kind) {
			return false
		}
	}
	joined := currentCondition(peer, v1alpha1.ConditionJoined)
	return joined != nil && joined.Status == metav1.ConditionFalse
}

// tell says what was agreed on.
func (j *joining) tell(command *cobra.Command, ours string, peer *v1alpha1.Peer) error {
	const oneWay = "%s can run pods in %s.\n%s"
	switch {
	case !peer.HasRole(v1alpha1.RoleConsumer):
		return say(command, oneWay, ours, j.name(), j.oneDirection())
	case meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined):
		return say(command, "%s and %s run pods in each other.\n", ours, j.name())
	default:
		return say(command, oneWay, ours, j.name(), fmt.Sprintf("This is only one direction until %s uses the invitation that it has from here.\n", j.name()))
	}
}

// oneDirection says what to do when only one side has asked for both directions.
func (j *joining) oneDirection() string {
	why := ""
	switch {
	case j.mutual && !j.invitation.Mutual():
		why = j.invitation.ClusterID + " did not say --mutual when it invited this cluster"
	case !j.mutual && j.invitation.Mutual():
		why = j.invitation.ClusterID + " would run pods here too, but --mutual was not said here"
	default:
		return ""
	}
	return fmt.Sprintf("This is only one direction: %s. For the other one, run `kubectl hanse invite %s` here and join there.\n",
		why, j.name())
}
