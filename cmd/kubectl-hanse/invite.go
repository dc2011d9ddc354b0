package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

type inviteFlags struct {
	invitationRequest
	waitFlags
	timeToLive time.Duration
	dryRun     string
	output     string
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
	f.DurationVar(&flags.timeToLive, "ttl", time.Hour, "how long the invitation can be used, up to 168h")
	f.BoolVar(&flags.Renew, "renew", false, "invite a peer that has joined before once more; its pods stay")
	f.BoolVar(&flags.NewKey, "new-key", false, "forget the key of the peer, and believe whoever uses the invitation that it is the peer")
	f.StringArrayVar(&flags.Servers, "server", nil,
		"address of this cluster's API server as the peer reaches it, such as https://203.0.113.7:6443; may be given several times")
	f.StringVar(&flags.dryRun, "dry-run", "none", "none, or client: print the Peer that would make the cluster invite, and write nothing")
	f.StringVarP(&flags.output, "output", "o", "", "token, or yaml: the Secret that holds it, or with --dry-run=client the Peer")
	flags.bind(f, time.Minute, "the invitation is there, and print it")
	return command
}

// validate reports flags that make no sense.
func (f *inviteFlags) validate() error {
	switch {
	case f.dryRun != "none" && f.dryRun != "client":
		return fmt.Errorf("--dry-run is none or client, not %q", f.dryRun)
	case f.output != "" && f.output != "token" && f.output != "yaml":
		return fmt.Errorf("--output is token or yaml, not %q", f.output)
	case f.dryRun == "client" && f.output == "token":
		return errors.New("--dry-run=client makes no token: its --output is yaml")
	default:
		return f.check()
	}
}

func runInvite(command *cobra.Command, global *globalFlags, flags *inviteFlags, name string) error {
	if err := errors.Join(checkPeerName(name), flags.validate()); err != nil {
		return err
	}
	if flags.dryRun == "client" {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}}
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
	report("The invitation for %s can be used once, until %s. In the other cluster: kubectl hanse join TOKEN",
		name, orElse(secret.Annotations[v1alpha1.AnnotationExpires], "it expires"))
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
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = controllerutil.CreateOrUpdate(ctx, c, peer, func() error {
		if err := r.allowed(peer); err != nil {
			return err
		}
		r.put(peer, secret, now)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("write Peer %s: %w", name, err)
	}
	return peer, nil
}

// awaitInvitation waits until the manager has made the invitation of that serial, and returns the Secret that holds it.
func awaitInvitation(
	ctx context.Context, c client.Client, name string, serial int64, told *progress,
) (*corev1.Secret, error) {
	var found *corev1.Secret
	err := until(ctx, "the manager to make the invitation (does it run? See `kubectl hanse check`)",
		func(ctx context.Context) (bool, error) {
			secret, err := tenantSecret(ctx, c, name, v1alpha1.InvitationSecret)
			if err != nil {
				return false, err
			}
			if secret != nil && serialOf(secret) == serial && len(secret.Data[v1alpha1.InvitationToken]) > 0 {
				found = secret
				return true, nil
			}
			peer, err := readPeer(ctx, c, name)
			if err != nil {
				return false, err
			}
			return false, notInvited(peer, told)
		})
	return found, err
}

// notInvited tells why there is no invitation yet. Only the lack of an address is something that waiting does not mend.
func notInvited(peer *v1alpha1.Peer, told *progress) error {
	for _, kind := range []string{v1alpha1.ConditionJoined, v1alpha1.ConditionReady} {
		c := currentCondition(peer, kind)
		if c == nil || c.Status != metav1.ConditionFalse {
			continue
		}
		if c.Reason == v1alpha1.ReasonNoServerAddress {
			return final{fmt.Errorf("there is no invitation%s. Say where %s reaches this cluster's API server: --server https://HOST:PORT",
				because(c), peer.Name)}
		}
		told.tell(c.Message)
		return nil
	}
	return nil
}
