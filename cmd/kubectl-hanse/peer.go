package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type peerFlags struct {
	remote       target
	name         string
	remoteName   string
	server       string
	remoteServer string
	mutual       bool
	wait         bool
	timeout      time.Duration
}

func newPeerCommand(global *globalFlags) *cobra.Command {
	flags := &peerFlags{}
	command := &cobra.Command{
		Use:   "peer",
		Short: "Let this cluster run pods in another one",
		Long: "Makes each of two clusters, in which Hanse is installed, know the other, and gives this one credentials of limited\n" +
			"rights over there: to its own messages, and to the pods that it runs there. Nothing else of the other cluster can\n" +
			"be seen or touched with them. Nothing is written to this machine.",
		Example: `  # Run pods of lubeck in hamburg
  kubectl hanse peer --context lubeck --remote-context hamburg

  # And the other way round as well
  kubectl hanse peer --context lubeck --remote-context hamburg --mutual

  # hamburg in a kubeconfig of its own, whose API server has another address from lubeck
  kubectl hanse peer --remote-kubeconfig hamburg.yaml --remote-server https://203.0.113.7:6443`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return runPeer(command, global, flags) },
	}
	flags.bind(command.Flags())
	return command
}

func (f *peerFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.remote.kubeconfig, "remote-kubeconfig", "", "kubeconfig of the other cluster; by default the same as of this one")
	flags.StringVar(&f.remote.context, "remote-context", "", "context of the other cluster")
	flags.StringVar(&f.name, "name", "", "what the other cluster is called here; by default its cluster id")
	flags.StringVar(&f.remoteName, "remote-name", "", "what this cluster is called there; by default its cluster id")
	flags.StringVar(&f.remoteServer, "remote-server", "",
		"address of the other cluster's API server as pods of this one reach it; by default that of its kubeconfig")
	flags.StringVar(&f.server, "server", "", "with --mutual, the same for this cluster's API server")
	flags.BoolVar(&f.mutual, "mutual", false, "let the other cluster run pods in this one too")
	flags.BoolVar(&f.wait, "wait", true, "wait until the peers are ready")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait")
}

func runPeer(command *cobra.Command, global *globalFlags, flags *peerFlags) error {
	if flags.remote == (target{}) {
		return errors.New("which cluster? Say --remote-context or --remote-kubeconfig")
	}
	if flags.remote.kubeconfig == "" {
		flags.remote.kubeconfig = global.cluster.kubeconfig
	}
	ctx, cancel := context.WithTimeout(command.Context(), flags.timeout)
	defer cancel()
	here, err := openSide(ctx, global.cluster, global.namespace, flags.server)
	if err != nil {
		return err
	}
	there, err := openSide(ctx, flags.remote, global.namespace, flags.remoteServer)
	if err != nil {
		return err
	}
	if here.id == there.id {
		return fmt.Errorf("both contexts lead to cluster %q: a cluster cannot be its own peer, and two clusters with one id cannot be peers", here.id)
	}
	here.called, there.called = orElse(flags.remoteName, here.id), orElse(flags.name, there.id)
	return joinSides(ctx, command, flags, here, there)
}

func joinSides(ctx context.Context, command *cobra.Command, flags *peerFlags, here, there *side) error {
	report := reporter(command)
	directions := []struct{ consumer, provider *side }{{here, there}}
	if flags.mutual {
		directions = append(directions, struct{ consumer, provider *side }{there, here})
	}
	for _, d := range directions {
		report("Letting %s run pods in %s", d.consumer.id, d.provider.id)
		if err := join(ctx, d.consumer, d.provider); err != nil {
			return err
		}
	}
	for _, d := range directions {
		if !flags.wait {
			break
		}
		report("Waiting for %s to be ready in %s", d.provider.called, d.consumer.id)
		if err := waitPeerReady(ctx, d.consumer, d.provider.called); err != nil {
			return err
		}
	}
	if flags.mutual {
		return say(command, "%s and %s run pods in each other.\n", here.id, there.id)
	}
	return say(command, "%s can run pods in %s. (The other way round: --mutual.)\n", here.id, there.id)
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
