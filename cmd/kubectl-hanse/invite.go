// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/trust"
)

type inviteFlags struct {
	invitationRequest
	writeFlags
	timeToLive time.Duration
}

func newInviteCommand(global *globalFlags) *cobra.Command {
	flags := &inviteFlags{}
	command := &cobra.Command{
		Use:   "invite NAME",
		Short: "Invite another cluster to run pods in this one",
		Long: "Makes a Peer of the name for the other cluster and prints an invitation for it: one line, for its administrator to\n" +
			"give to `kubectl hanse join` there. Whoever has the line can use it, once, until it expires: send it as you would\n" +
			"send a password. It gives no right but to become this peer.",
		Example: `  # Let lubeck run pods here
  kubectl hanse invite lubeck

  # And run pods in lubeck as well, if it joins with --mutual
  kubectl hanse invite lubeck --mutual

  # lubeck joined long ago and was cut off for longer than its session lasts: its pods stay
  kubectl hanse invite lubeck --renew

  # lubeck is a member too: it and other members know of each other through this cluster, a broker
  kubectl hanse invite lubeck --member

  # From one of your clusters to another
  kubectl hanse invite lubeck --context hamburg | kubectl hanse join - --context lubeck

  # Only the objects, for GitOps
  kubectl hanse invite lubeck --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if command.Flags().Changed("ttl") {
				flags.TimeToLive = &metav1.Duration{Duration: flags.timeToLive}
			}
			return runInvite(command, global, flags, args[0])
		},
	}
	f := command.Flags()
	f.BoolVar(&flags.Mutual, "mutual", false, "run pods in the other cluster as well, if it joins with --mutual")
	f.BoolVar(&flags.Member, "member", false, "make the other cluster known to other members of this one, a broker; also if it has joined already")
	f.DurationVar(&flags.timeToLive, "ttl", time.Hour, "how long the invitation can be used, up to 168h")
	f.BoolVar(&flags.Renew, "renew", false, "invite a peer that has joined before once more; its pods stay")
	f.BoolVar(&flags.NewKey, "new-key", false, "forget the key of the peer, and believe whoever uses the invitation that it is the peer")
	f.StringArrayVar(&flags.Servers, "server", nil,
		"address of this cluster's API server as the peer reaches it, such as https://203.0.113.7:6443; may be given several times")
	flags.bind(f, time.Minute, "the invitation is there, and print it")
	output := f.Lookup("output")
	output.Value, output.Usage = oneOf(&flags.output, "token", "yaml"), "token, or yaml: the Secret that holds it, or with --dry-run=client the Peer"
	return command
}

func runInvite(command *cobra.Command, global *globalFlags, flags *inviteFlags, name string) error {
	if err := errors.Join(checkPeerName(name), flags.check()); err != nil {
		return err
	}
	if flags.dry() {
		if flags.output == "token" {
			return errors.New("--dry-run=client makes no token: its --output is yaml")
		}
		peer := blankPeer(name)
		flags.put(peer, nil, time.Now())
		return printObjects(command.OutOrStdout(), peer)
	}
	return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
		return doInvite(ctx, command, c.client, flags, name)
	})
}

func doInvite(ctx context.Context, command *cobra.Command, c client.Client, flags *inviteFlags, name string) error {
	report := reporter(command)
	peer, err := flags.write(ctx, c, name, time.Now())
	if err != nil {
		return err
	}
	if flags.NewKey {
		report("WARNING: the key of %s is forgotten. Whoever uses this invitation first is taken for %s from then on, and gets\n"+
			"what it has here. Give it to nobody but the administrator of %s.", name, name, name)
	}
	if flags.Member && flags.wait {
		if err := awaitMembership(ctx, c, name); err != nil {
			return err
		}
	}
	if flags.addsMember(peer) {
		report("Peer %s has the role Member. In the other cluster, if this one is not its broker yet: "+
			"kubectl patch peer NAME --type=merge -p '{\"spec\":{\"roles\":[\"Provider\",\"Broker\"]}}'", name)
		return nil
	}
	if !flags.wait {
		report("Peer %s asks for an invitation. To read it: kubectl get secret %s -n %s -o jsonpath='{.data.%s}' | base64 -d",
			name, v1alpha1.InvitationSecret, v1alpha1.TenantNamespace(name), v1alpha1.InvitationToken)
		return nil
	}
	report("Waiting for the manager to make the invitation")
	secret, err := awaitInvitation(ctx, c, name, peer.Spec.Invitation.Serial, &progress{report: report})
	if err != nil {
		return err
	}
	report("The invitation for %s can be used once, until %s. In the other cluster: %s",
		name, orElse(secret.Annotations[v1alpha1.AnnotationExpires], "it expires"), flags.joinCommand())
	if flags.output == "yaml" {
		// What else is in there is for this cluster alone.
		secret.Data = map[string][]byte{v1alpha1.InvitationToken: secret.Data[v1alpha1.InvitationToken]}
		return printObjects(command.OutOrStdout(), secret)
	}
	return say(command, "%s\n", strings.TrimSpace(string(secret.Data[v1alpha1.InvitationToken])))
}

// write makes the Peer ask for an invitation.
func (r invitationRequest) write(ctx context.Context, c client.Client, name string, now time.Time) (*v1alpha1.Peer, error) {
	secret, err := tenantSecret(ctx, c, name, v1alpha1.InvitationSecret)
	if err != nil {
		return nil, err
	}
	peer := blankPeer(name)
	return peer, write(ctx, c, peer, func() error {
		if err := r.allowed(peer); err != nil {
			return err
		}
		r.put(peer, secret, now)
		return nil
	})
}

// awaitMembership waits until the peer, a member, may read what other members say.
func awaitMembership(ctx context.Context, c client.Client, name string) error {
	return install.Until(ctx, "the manager to make "+name+" a member (does it run? See `kubectl hanse check`)", func(ctx context.Context) (bool, error) {
		peer, err := readPeer(ctx, c, name)
		if err != nil {
			return false, err
		}
		admitted := currentCondition(peer, v1alpha1.ConditionAdmitted)
		if admitted == nil || admitted.Reason != v1alpha1.ReasonBrokerDisabled {
			return admitted != nil && admitted.Status == metav1.ConditionTrue, nil
		}
		err = fmt.Errorf("%s is no member yet%s. Then do the same again", name, because(admitted))
		if enabled, findErr := read(ctx, c, "", v1alpha1.MembersNamespace, &corev1.Namespace{}); enabled || findErr != nil {
			return false, errors.Join(err, findErr) // it was enabled just now, which the manager sees within a minute
		}
		return false, install.Final(err)
	})
}

// awaitInvitation waits until the manager has made the invitation of that serial, and returns the Secret that holds it.
func awaitInvitation(ctx context.Context, c client.Client, name string, serial int64, told *progress) (*corev1.Secret, error) {
	var found *corev1.Secret
	err := install.Until(ctx, "the manager to make the invitation (does it run? See `kubectl hanse check`)",
		func(ctx context.Context) (bool, error) {
			secret, err := tenantSecret(ctx, c, name, v1alpha1.InvitationSecret)
			if serialOf(secret) == serial && len(secret.Data[v1alpha1.InvitationToken]) > 0 {
				found = secret
				return true, nil
			}
			peer, peerErr := readPeer(ctx, c, name)
			if err := errors.Join(err, peerErr); err != nil {
				return false, err
			}
			return false, notInvited(peer, told)
		})
	return found, err
}

// notInvited tells why there is no invitation yet. Waiting helps, except where no address of the API server is known.
func notInvited(peer *v1alpha1.Peer, told *progress) error {
	for _, kind := range []string{v1alpha1.ConditionJoined, v1alpha1.ConditionReady} {
		switch c := currentCondition(peer, kind); {
		case c == nil || c.Status != metav1.ConditionFalse:
		case c.Reason == v1alpha1.ReasonNoServerAddress:
			return install.Final(fmt.Errorf("there is no invitation%s. Say where %s reaches this cluster's API server: --server https://HOST:PORT",
				because(c), peer.Name))
		default:
			told.tell(c.Message)
			return nil
		}
	}
	return nil
}

var errJoined = errors.New("it has joined already")

// An invitationRequest is what an administrator asks of an invitation.
type invitationRequest struct {
	Mutual     bool             // role Provider too
	Renew      bool             // another one, whatever became of the last
	NewKey     bool             // the peer may have another key than before
	Member     bool             // role Member too
	TimeToLive *metav1.Duration // nil: as before
	Servers    []string         // none: as before
}

// check reports values that the API would refuse, before anything is written.
func (r invitationRequest) check() error {
	if r.TimeToLive != nil && (r.TimeToLive.Duration < time.Second || r.TimeToLive.Duration > 168*time.Hour) {
		return fmt.Errorf("--ttl is between 1s and 168h, not %s", r.TimeToLive.Duration)
	}
	return checkServers(r.Servers)
}

func checkServers(servers []string) error {
	if err := trust.CheckServers(servers); err != nil && len(servers) > 0 {
		return fmt.Errorf("--server: %w", err)
	}
	return nil
}

func checkPeerName(name string) error {
	const maxPeerName = 40
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
	case !r.renews() && hasJoined(peer) && !r.addsMember(peer):
		return fmt.Errorf("%w: --renew makes a new invitation for the same peer, whose pods stay; to run pods in it as well, "+
			"have its administrator run `kubectl hanse invite` there and join here", errJoined)
	default:
		return nil
	}
}

func hasJoined(peer *v1alpha1.Peer) bool {
	return meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined)
}

// addsMember reports whether nothing is asked but that a peer that has joined becomes a member. It needs no invitation for that.
func (r invitationRequest) addsMember(peer *v1alpha1.Peer) bool {
	return hasJoined(peer) && equality.Semantic.DeepEqual(r, invitationRequest{Member: true})
}

// joinCommand is how the invitation is used.
func (r invitationRequest) joinCommand() string {
	if r.Member {
		return "kubectl hanse join TOKEN --broker"
	}
	return "kubectl hanse join TOKEN"
}

// renews reports whether another invitation is to be made in any case. A new key is of use only with one.
func (r invitationRequest) renews() bool { return r.Renew || r.NewKey }

// put makes the Peer ask for the invitation. The one that lies in the Secret, which may be nil, stays if it can still be
// used and is as it should be.
func (r invitationRequest) put(peer *v1alpha1.Peer, secret *corev1.Secret, now time.Time) {
	if r.addsMember(peer) {
		addRole(peer, v1alpha1.RoleMember)
		return
	}
	before := peer.Spec.DeepCopy()
	addRole(peer, v1alpha1.RoleConsumer)
	if r.Mutual {
		addRole(peer, v1alpha1.RoleProvider)
	}
	if peer.Spec.Invitation == nil {
		peer.Spec.Invitation = &v1alpha1.PeerInvitation{}
	}
	asked := peer.Spec.Invitation
	if r.TimeToLive != nil {
		asked.TimeToLive = r.TimeToLive
	}
	if len(r.Servers) > 0 {
		asked.Servers = r.Servers
	}
	if r.renews() || !equality.Semantic.DeepEqual(*before, peer.Spec) || !usable(peer, secret, now) {
		asked.Serial = max(asked.Serial, madeSerial(peer), serialOf(secret)) + 1
	}
	if r.NewKey {
		peer.Spec.PublicKey = ""
	}
	if r.Member { // what an invitation says does not depend on that
		addRole(peer, v1alpha1.RoleMember)
	}
}

// usable reports whether the invitation that the Peer asks for can be used, or is still to be made.
func usable(peer *v1alpha1.Peer, secret *corev1.Secret, now time.Time) bool {
	asked, made := peer.Spec.Invitation.Serial, serialOf(secret)
	switch {
	case secret == nil:
		return madeSerial(peer) < asked
	case made != asked:
		return made < asked
	case len(secret.Data[v1alpha1.InvitationToken]) > 0 && spent(peer):
		return false
	}
	expires, err := time.Parse(time.RFC3339, secret.Annotations[v1alpha1.AnnotationExpires])
	return err != nil || expires.After(now)
}

// spent reports whether somebody has used the invitation, also where the peer was then refused.
func spent(peer *v1alpha1.Peer) bool {
	joined := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionJoined)
	return joined != nil && joined.Reason != v1alpha1.ReasonInvited && joined.Reason != v1alpha1.ReasonPending
}

// madeSerial is that of the last invitation that the manager has told of.
func madeSerial(peer *v1alpha1.Peer) int64 {
	return ptr.Deref(peer.Status.Invitation, v1alpha1.InvitationStatus{Serial: -1}).Serial
}

// serialOf is that of the invitation in the Secret, and lower than any if there is none.
func serialOf(secret *corev1.Secret) int64 {
	if secret != nil {
		if serial, err := strconv.ParseInt(secret.Annotations[v1alpha1.AnnotationSerial], 10, 64); err == nil {
			return serial
		}
	}
	return -1
}
