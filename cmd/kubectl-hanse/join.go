package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanse-dev/hanse/internal/trust"
)

// maxTokenText bounds what is read from standard input.
const maxTokenText = 64 << 10

type joinFlags struct {
	dryRunFlags
	waitFlags
	as      string
	mutual  bool
	servers []string
	agentlessFlags
}

func newJoinCommand(global *globalFlags) *cobra.Command {
	flags := &joinFlags{}
	command := &cobra.Command{
		Use:   "join TOKEN|-",
		Short: "Use the invitation of another cluster, to run pods in it",
		Long: "Uses an invitation that `kubectl hanse invite` printed in another cluster. Hanse in this cluster proves to that one\n" +
			"who it is, and gets credentials of limited rights: to its own messages, and to the pods that it runs there. They are\n" +
			"renewed by themselves. Nothing is written to this machine.\n\n" +
			"With --agentless there is no invitation: pods run in namespaces of a cluster without Hanse, by a kubeconfig for it.",
		Example: `  # Run pods in the cluster that the invitation is of
  kubectl hanse join hanse1.eyJ...

  # And let that cluster run pods in this one as well, if it was invited with --mutual
  kubectl hanse join hanse1.eyJ... --mutual

  # The invitation from standard input, so that no list of processes shows it
  kubectl hanse join - --as hamburg < invitation

  # Only the objects, for GitOps
  kubectl hanse join hanse1.eyJ... --dry-run=client -o yaml

  # Run pods in two namespaces of a cluster without Hanse
  kubectl hanse join --agentless --remote-kubeconfig bremen.yaml --namespaces a,b --as bremen`,
		Args: func(_ *cobra.Command, args []string) error { return flags.checkArgs(args) },
		RunE: func(command *cobra.Command, args []string) error { return runJoin(command, global, flags, args) },
	}
	f := command.Flags()
	f.StringVar(&flags.as, "as", "", "what the other cluster is called here; by default its cluster id")
	f.BoolVar(&flags.mutual, "mutual", false, "let the other cluster run pods in this one too, if it was invited with --mutual")
	f.StringArrayVar(&flags.servers, "server", nil,
		"with --mutual, address of this cluster's API server as the other one reaches it; may be given several times")
	flags.agentlessFlags.bind(f)
	flags.dryRunFlags.bind(f)
	flags.waitFlags.bind(f, 3*time.Minute, "pods can run in the other cluster")
	return command
}

func (f *joinFlags) checkArgs(args []string) error {
	switch {
	case f.agentless && len(args) > 0:
		return errors.New("a cluster without Hanse invites nobody: --agentless takes no TOKEN")
	case !f.agentless && len(args) != 1:
		return errors.New("what invitation? Give the line that `kubectl hanse invite` printed in the other cluster, or - to read it from standard input")
	default:
		return nil
	}
}

// validate reports flags that make no sense.
func (f *joinFlags) validate() error {
	if len(f.servers) > 0 && !f.mutual {
		return errors.New("--server is for --mutual: only who is invited has to reach this cluster's API server")
	}
	if f.as != "" {
		if err := checkPeerName(f.as); err != nil {
			return err
		}
	}
	return errors.Join(checkServers(f.servers), f.dryRunFlags.validate(), f.agentlessFlags.validate(f.as, f.mutual))
}

func runJoin(command *cobra.Command, global *globalFlags, flags *joinFlags, args []string) error {
	if err := flags.validate(); err != nil {
		return err
	}
	if flags.agentless {
		return runAgentless(command, global, flags)
	}
	text, err := invitationText(command.InOrStdin(), args[0])
	if err != nil {
		return err
	}
	j, err := newJoining(text, time.Now())
	if err != nil {
		return err
	}
	j.as, j.mutual, j.servers = flags.as, flags.mutual, flags.servers
	if flags.dry() {
		command.PrintErr(j.oneDirection())
		return printObjects(command.OutOrStdout(), j.objects()...)
	}
	return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
		j.report, j.system = reporter(command), global.namespace
		return doJoin(ctx, command, c.client, j, flags.wait)
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

// newJoining reads an invitation.
func newJoining(text string, now time.Time) (*joining, error) {
	invitation, err := trust.ParseInvitation(text)
	if err != nil {
		return nil, fmt.Errorf("read the invitation: %w; copy the whole line that `kubectl hanse invite` printed", err)
	}
	if !invitation.Expires.After(now) {
		return nil, fmt.Errorf("the invitation has expired (%s): ask %s for another one, `kubectl hanse invite %s --renew`",
			invitation.Expires.UTC().Format(time.RFC3339), invitation.ClusterID, nameOver(invitation))
	}
	return &joining{text: text, invitation: invitation, now: now}, nil
}
