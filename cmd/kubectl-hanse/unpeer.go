package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

type unpeerFlags struct {
	dryRunFlags
	waitFlags
	drain  string
	force  bool
	forget bool
}

func newUnpeerCommand(global *globalFlags) *cobra.Command {
	flags := &unpeerFlags{}
	command := &cobra.Command{
		Use:   "unpeer PEER",
		Short: "Part from another cluster",
		Long: "Ends both directions at once. Our pods are moved away from the peer, the peer is asked to move its pods away from\n" +
			"here, and then each side removes what it has made for the other, so that nothing is left: it is enough to say this\n" +
			"on one side. While pods run, it is refused until --drain says what becomes of them.\n\n" +
			"If the peer does not answer within five minutes, what it has here ends without it. Our own pods over there are\n" +
			"waited for as long as it takes; when the peer is gone for ever, --force does not wait for anything. A signed record\n" +
			"is then kept for 30 days, by which a peer that comes back after all knows that it has to clean up.",
		Example: `  # No pods run
  kubectl hanse unpeer hamburg

  # Evict our pods from hamburg, and keep PodDisruptionBudgets
  kubectl hanse unpeer hamburg --drain=wait

  # Delete our pods in hamburg at once
  kubectl hanse unpeer hamburg --drain=now

  # hamburg has burnt down
  kubectl hanse unpeer hamburg --force`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := flags.validate(); err != nil {
				return err
			}
			return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
				return runUnpeer(ctx, command, c.cluster(command), flags, args[0])
			})
		},
	}
	f := command.Flags()
	f.StringVar(&flags.drain, "drain", "", "what becomes of our pods over there: wait (they are evicted, which keeps PodDisruptionBudgets) or now (they are deleted)")
	f.BoolVar(&flags.force, "force", false, "wait for nothing over there: the peer is gone for ever, or cannot be asked")
	f.BoolVar(&flags.forget, "forget", false, "with --force, keep no record for a peer that comes back")
	flags.dryRunFlags.bind(f)
	flags.waitFlags.bind(f, 10*time.Minute, "nothing is left")
	return command
}

// validate reports flags that make no sense.
func (f *unpeerFlags) validate() error {
	switch {
	case f.drain != "" && f.drain != "wait" && f.drain != "now":
		return fmt.Errorf("--drain is wait or now, not %q", f.drain)
	case f.force && f.drain == "wait":
		return errors.New("--force waits for nothing: leave out --drain=wait")
	case f.forget && !f.force:
		return errors.New("--forget is for --force")
	default:
		return f.dryRunFlags.validate()
	}
}

// parting is what the flags mean.
func (f *unpeerFlags) parting() *v1alpha1.PeerParting {
	parting := &v1alpha1.PeerParting{Mode: v1alpha1.PartingAgreed, Drain: v1alpha1.DrainWait}
	if f.drain == "now" || f.force {
		parting.Drain = v1alpha1.DrainNow
	}
	switch {
	case f.forget:
		parting.Mode = v1alpha1.PartingForgotten
	case f.force:
		parting.Mode = v1alpha1.PartingForced
	}
	return parting
}

func runUnpeer(ctx context.Context, command *cobra.Command, cluster install.Cluster, flags *unpeerFlags, name string) error {
	peer, err := readPeer(ctx, cluster.Client, name)
	if err != nil {
		return err
	}
	if flags.dry() {
		peer.Spec.Parting = flags.parting()
		return printObjects(command.OutOrStdout(), peer)
	}
	if flags.drain == "" && !flags.force && peer.DeletionTimestamp.IsZero() {
		if err := checkIdle(ctx, cluster, name); err != nil {
			return err
		}
	}
	left, err := whatStaysThere(ctx, cluster.Client, peer)
	if err != nil {
		return err
	}
	if err := part(ctx, cluster.Client, peer, flags); err != nil {
		return err
	}
	if !flags.wait {
		return say(command, "This cluster parts from %s: see `kubectl hanse status %s`.\n", name, name)
	}
	return finishParting(ctx, command, cluster, flags, peerLeft{name, left})
}

// peerLeft is a former peer, and what it has that was not removed if it was not asked.
type peerLeft struct {
	name string
	left []string
}

// finishParting waits until the Peer is gone, and tells what is left.
func finishParting(ctx context.Context, command *cobra.Command, cluster install.Cluster, flags *unpeerFlags, former peerLeft) error {
	if err := awaitParted(ctx, cluster, former.name); err != nil {
		return err
	}
	if err := say(command, "%s is no longer a peer of this cluster.\n", former.name); err != nil || !flags.force {
		return err
	}
	return tellForced(ctx, command, cluster.Client, former)
}
