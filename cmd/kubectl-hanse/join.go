// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// maxTokenText bounds what is read from standard input.
const maxTokenText = 64 << 10

type joinFlags struct {
	writeFlags
	as      string
	mutual  bool
	servers []string
	agentlessFlags
	memberFlags
}

func newJoinCommand(global *globalFlags) *cobra.Command {
	flags := &joinFlags{}
	command := &cobra.Command{
		Use:   "join [TOKEN|-]",
		Short: "Use the invitation of another cluster, to run pods in it",
		Long: "Uses an invitation that `kubectl hanse invite` printed in another cluster. Hanse in this cluster proves to that one\n" +
			"who it is, and gets credentials of limited rights: to its own messages, and to the pods that it runs there. They are\n" +
			"renewed by themselves. Nothing is written to this machine.\n\n" +
			"With --broker the members of the other cluster and this one know of each other as well: see `kubectl hanse members`. With\n" +
			"--member there is no TOKEN: the invitation of such a member is asked for through the broker.\n\n" +
			"With --agentless there is no invitation: pods run in namespaces of a cluster without Hanse, by a kubeconfig for it.",
		Example: `  # Run pods in the cluster that the invitation is of
  kubectl hanse join hanse1.eyJ...

  # And let that cluster run pods in this one as well, if it was invited with --mutual
  kubectl hanse join hanse1.eyJ... --mutual

  # The invitation from standard input, so that no list of processes shows it
  kubectl hanse join - --as hamburg < invitation

  # Only the objects, for GitOps
  kubectl hanse join hanse1.eyJ... --dry-run=client -o yaml

  # Become a member of the cluster that the invitation is of, a broker, and let some of the others run pods here
  kubectl hanse join hanse1.eyJ... --broker --accept-members 'bremen,team-*'

  # Run pods in a cluster that is known through a broker
  kubectl hanse join --member bremen

  # Run pods in two namespaces of a cluster without Hanse
  kubectl hanse join --agentless --remote-kubeconfig bremen.yaml --namespaces a,b --as bremen`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error { return runJoin(command, global, flags, args) },
	}
	f := command.Flags()
	f.StringVar(&flags.as, "as", "", "what the other cluster is called here; by default its cluster id")
	f.BoolVar(&flags.mutual, "mutual", false, "let the other cluster run pods in this one too, if it was invited with --mutual")
	f.StringArrayVar(&flags.servers, "server", nil,
		"with --mutual, address of this cluster's API server as the other one reaches it; may be given several times")
	flags.agentlessFlags.bind(command)
	flags.memberFlags.bind(command)
	flags.writeFlags.bind(f, 3*time.Minute, "pods can run in the other cluster")
	return command
}

// validate reports flags that make no sense.
func (f *joinFlags) validate(args []string) error {
	switch {
	case f.agentless && len(args) > 0:
		return errors.New("a cluster without Hanse invites nobody: --agentless takes no TOKEN")
	case f.member != "" && len(args) > 0:
		return errors.New("the invitation of a member is asked for through the broker: --member takes no TOKEN")
	case !f.agentless && f.member == "" && len(args) == 0:
		return errors.New("what invitation? Give the line that `kubectl hanse invite` printed in the other cluster, or - to read it from standard input")
	case len(f.servers) > 0 && !f.mutual:
		return errors.New("--server is for --mutual: only who is invited has to reach this cluster's API server")
	}
	var name error
	if f.as != "" {
		name = checkPeerName(f.as)
	}
	return errors.Join(name, checkServers(f.servers), f.dryRunFlags.validate(), f.agentlessFlags.validate(f.as), f.memberFlags.validate())
}

func runJoin(command *cobra.Command, global *globalFlags, flags *joinFlags, args []string) error {
	if err := flags.validate(args); err != nil {
		return err
	}
	if flags.agentless {
		return runAgentless(command, global, flags)
	}
	if flags.member != "" {
		return runJoinMember(command, global, flags)
	}
	text, err := invitationText(command.InOrStdin(), args[0])
	if err != nil {
		return err
	}
	j, err := newJoining(text, time.Now())
	if err != nil {
		return err
	}
	j.joinFlags = flags
	if flags.dry() {
		command.PrintErr(j.oneDirection())
		peer := blankPeer(j.name())
		j.announce(peer)
		j.put(peer, nil)
		j.makeBroker(peer)
		return printObjects(command.OutOrStdout(), withSecret(peer, v1alpha1.JoinSecret, j.data())...)
	}
	return global.withHanse(command, flags.timeout, func(ctx context.Context, c *connection, system string) error {
		j.system = system
		return doJoin(ctx, command, c.client, j)
	})
}

// invitationText is the invitation as it was given.
func invitationText(in io.Reader, arg string) (string, error) {
	if arg != "-" {
		return strings.TrimSpace(arg), nil
	}
	text, err := io.ReadAll(io.LimitReader(in, maxTokenText))
	if err != nil {
		return "", fmt.Errorf("read the invitation from standard input: %w", err)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return "", errors.New("there is no invitation on standard input: see what `kubectl hanse invite` says in the other cluster")
	}
	return strings.TrimSpace(string(text)), nil
}

// A joining is the use of an invitation.
type joining struct {
	*joinFlags
	text       string // the invitation as it was given
	invitation *trust.Invitation
	system     string // the namespace of Hanse
	now        time.Time
	told       *progress
	before     *v1alpha1.Peer // as it was before this attempt has changed it, nil if it was not there
}

// newJoining reads an invitation.
func newJoining(text string, now time.Time) (*joining, error) {
	invitation, err := trust.ParseInvitation(text)
	if err != nil {
		return nil, fmt.Errorf("read the invitation: %w; copy the whole line that `kubectl hanse invite` printed", err)
	}
	if !invitation.Expires.After(now) {
		return nil, fmt.Errorf("the invitation has expired (%s): ask %s for another one, `kubectl hanse invite %s --renew`",
			invitation.Expires.UTC().Format(time.RFC3339), invitation.ClusterID, nameThere(invitation.Namespace))
	}
	return &joining{joinFlags: &joinFlags{}, text: text, invitation: invitation, now: now}, nil
}

// name is what the provider is to be called here.
func (j *joining) name() string { return orElse(j.as, j.invitation.ClusterID) }

// mutually reports whether both sides want both directions. On one side only, it is one direction.
func (j *joining) mutually() bool { return j.mutual && j.invitation.Mutual() }

// announce has the manager look at the Secret, which it does not watch.
func (j *joining) announce(peer *v1alpha1.Peer) {
	metav1.SetMetaDataAnnotation(&peer.ObjectMeta, v1alpha1.AnnotationJoin, j.invitation.ID)
}

func (j *joining) data() map[string][]byte {
	return map[string][]byte{v1alpha1.InvitationToken: []byte(j.text)}
}

// withSecret is the Peer with a Secret in its tenant namespace, and that one as the manager takes it if it is there already.
func withSecret(peer *v1alpha1.Peer, name string, data map[string][]byte) []client.Object {
	in := v1alpha1.TenantNamespace(peer.Name)
	labels := map[string]string{v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: peer.Name, v1alpha1.LabelManaged: "true"}
	return []client.Object{
		peer,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in, Labels: labels}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}, Data: data},
	}
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

// doJoin writes the objects and waits until they have had their effect. Doing it again goes on where it was.
func doJoin(ctx context.Context, command *cobra.Command, c client.Client, j *joining) error {
	j.told = &progress{report: reporter(command)}
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
	if err := j.welcome(ctx, c); err != nil {
		return err
	}
	before, err := j.write(ctx, c)
	if err != nil {
		return err
	}
	if !j.wait {
		return say(command, "This cluster joins %s: see `kubectl hanse status %s`.\n", j.name(), j.name())
	}
	peer, err := j.await(ctx, c, before)
	if errors.Is(err, errNotAccepted) {
		return errors.Join(err, j.takeBack(ctx, c))
	}
	if err != nil {
		return err
	}
	if err := j.tell(command, ours, peer); err != nil || !j.broker {
		return err
	}
	return say(command, "%s is a member of %s: see `kubectl hanse members`.\n", ours, j.name())
}

// write makes what the manager needs in order to use the invitation, and returns the Peer's condition Session from before.
// What was done before stays done: an invitation that was used is not asked for once more.
func (j *joining) write(ctx context.Context, c client.Client) (*metav1.Condition, error) {
	joined, joinedErr := j.joined(ctx, c)
	// It may lie there already, beside what the manager has added.
	stored, storedErr := j.has(ctx, c, v1alpha1.JoinSecret, v1alpha1.InvitationToken, j.text)
	back, err := tenantSecret(ctx, c, j.name(), v1alpha1.InvitationSecret)
	if err := errors.Join(joinedErr, storedErr, err); err != nil {
		return nil, err
	}
	peer := blankPeer(j.name())
	err = write(ctx, c, peer, func() error {
		if j.before = nil; peer.ResourceVersion != "" {
			j.before = peer.DeepCopy()
		}
		if err := j.allowed(peer); err != nil {
			return err
		}
		if !joined && !stored {
			j.put(peer, back)
		}
		j.makeBroker(peer)
		return nil
	})
	if err != nil || joined {
		return nil, err
	}
	before := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession).DeepCopy()
	if !stored {
		j.told.report("Waiting for the manager to prepare namespace %s", v1alpha1.TenantNamespace(j.name()))
		if err := putTenantSecret(ctx, c, j.name(), v1alpha1.JoinSecret, j.data()); err != nil {
			return nil, err
		}
	}
	return before, changePeer(ctx, c, j.name(), j.announce)
}

// joined reports whether there are credentials that the invitation has brought.
func (j *joining) joined(ctx context.Context, c client.Client) (bool, error) {
	return j.has(ctx, c, v1alpha1.LinkSecret, v1alpha1.LinkSecretInvitation, j.invitation.ID)
}

// has reports whether a Secret of the tenant namespace has that value.
func (j *joining) has(ctx context.Context, c client.Client, secret, key, value string) (bool, error) {
	found, err := tenantSecret(ctx, c, j.name(), secret)
	return found != nil && string(found.Data[key]) == value, err
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

// await waits until the invitation was used and pods can run at the peer, and returns the Peer. before is the condition
// Session of an earlier attempt, nil if there was none: as long as it stands there, nobody has looked at this one.
func (j *joining) await(ctx context.Context, c client.Client, before *metav1.Condition) (*v1alpha1.Peer, error) {
	var peer *v1alpha1.Peer
	err := install.Until(ctx, j.name()+" to be ready", func(ctx context.Context) (bool, error) {
		joined, err := j.joined(ctx, c)
		if err != nil {
			return false, err
		}
		if peer, err = readPeer(ctx, c, j.name()); err != nil {
			return false, err
		}
		session := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession)
		switch {
		case joined && (isReady(peer, j.told) || !j.mutually() && isProvider(peer)):
			return j.introduced(peer)
		case joined, session == nil, before != nil && session.Reason == before.Reason && session.Message == before.Message:
		case slices.Contains(refusals, session.Reason):
			return false, install.Final(fmt.Errorf("%w by %s%s", errNotAccepted, j.invitation.ClusterID, because(session)))
		default:
			before = nil
			j.told.tell(session.Message)
		}
		return false, fmt.Errorf("it is not%s (`kubectl hanse status %s` shows more)", whyNotReady(peer), j.name())
	})
	return peer, err
}

// isReady reports whether the Peer, as its spec is now, is Ready, and tells why it is not.
func isReady(peer *v1alpha1.Peer, told *progress) bool {
	ready := currentCondition(peer, v1alpha1.ConditionReady)
	if ready != nil && ready.Status != metav1.ConditionTrue {
		told.tell(ready.Message)
	}
	return ready != nil && ready.Status == metav1.ConditionTrue
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
