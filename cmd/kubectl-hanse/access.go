package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

// An accessVerb changes what a peer may do here as a consumer.
type accessVerb struct {
	verb, short, long string
	access            v1alpha1.PeerAccess
	done              string // what is told then, of the peer
	waits             bool   // until the peer has no pods here
}

var accessVerbs = []accessVerb{
	{
		verb: "cordon", access: v1alpha1.AccessCordoned, short: "Take no more pods of a peer",
		long: "The pods that the peer has here stay, and are made again here if they are lost. It gets no more of them: its virtual\n" +
			"node for this cluster takes no more pods.",
		done: "runs no more pods here than it has",
	},
	{
		verb: "uncordon", access: v1alpha1.AccessOpen, short: "Take pods of a peer again, after cordon or drain",
		long: "Ends what cordon and drain have begun.",
		done: "may run pods here",
	},
	{
		verb: "drain", access: v1alpha1.AccessDraining, short: "Ask a peer to move its pods out of this cluster", waits: true,
		long: "Takes no more pods of the peer, and asks it to move those that it has here. The peer evicts them by itself and keeps\n" +
			"its own PodDisruptionBudgets, so that may take long. Nothing is ended here by force: for that there is `unpeer`.",
		done: "has no pods here any more, and gets none until `kubectl hanse uncordon`",
	},
	{
		verb: "suspend", access: v1alpha1.AccessSuspended, short: "Let a peer do nothing here for now, not even read",
		long: "Takes back the peer's rights here until `kubectl hanse resume`. Its pods run on, and it sees and changes nothing of\n" +
			"them meanwhile. Connections that are open already end within the minutes that the API server gives them.",
		done: "may do nothing here until `kubectl hanse resume`; its pods run on",
	},
	{
		verb: "resume", access: v1alpha1.AccessOpen, short: "Let a suspended peer work here again",
		long: "Gives a suspended peer its rights here back.",
		done: "may run pods here",
	},
}

// peerVerbFlags are those of verbs that change how this cluster deals with a peer.
type peerVerbFlags struct {
	dryRunFlags
	waitFlags
}

// A peerVerb is such a verb. await is what it waits for, if anything.
type peerVerb struct {
	verb, short, long, await string
	timeout                  time.Duration
	run                      func(ctx context.Context, command *cobra.Command, c client.Client, flags *peerVerbFlags, name string) error
}

func (v peerVerb) command(global *globalFlags) *cobra.Command {
	flags := &peerVerbFlags{}
	command := &cobra.Command{
		Use: v.verb + " PEER", Short: v.short, Long: v.long,
		Example: fmt.Sprintf("  kubectl hanse %s lubeck\n\n  # Only the object\n  kubectl hanse %s lubeck --dry-run=client -o yaml", v.verb, v.verb),
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := flags.validate(); err != nil {
				return err
			}
			return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
				return v.run(ctx, command, c.client, flags, args[0])
			})
		},
	}
	flags.dryRunFlags.bind(command.Flags())
	flags.timeout = v.timeout
	if v.await != "" {
		flags.waitFlags.bind(command.Flags(), v.timeout, v.await)
	}
	return command
}

// newAccessCommands makes the verbs by which a provider controls its consumers.
func newAccessCommands(global *globalFlags) []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range accessVerbs {
		verb := peerVerb{verb: v.verb, short: v.short, long: v.long, timeout: 30 * time.Second, run: v.run}
		if v.waits {
			verb.await, verb.timeout = "the peer has no pods here", 10*time.Minute
		}
		commands = append(commands, verb.command(global))
	}
	return commands
}

func (v accessVerb) run(ctx context.Context, command *cobra.Command, c client.Client, flags *peerVerbFlags, name string) error {
	change := editOfPeer(c, name, v.change)
	if flags.dry() {
		return change.print(ctx, command)
	}
	if err := change.write(ctx, c); err != nil {
		return err
	}
	if v.waits && !flags.wait {
		return say(command, "%s is asked to move its pods away.\n", name)
	}
	if v.waits {
		if err := awaitDrained(ctx, c, name, &progress{report: reporter(command)}); err != nil {
			return err
		}
	}
	return say(command, "%s %s.\n", name, v.done)
}

// change sets the access. What was suspended is only resumed: no other verb gives it rights by the way.
func (v accessVerb) change(peer *v1alpha1.Peer) error {
	suspended := peer.Access() == v1alpha1.AccessSuspended
	switch {
	case !peer.HasRole(v1alpha1.RoleConsumer):
		return fmt.Errorf("it runs no pods here: it is no consumer. To run no more pods of this cluster over there: kubectl cordon %s",
			v1alpha1.VirtualNodeName(peer.Name))
	case !peer.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted: this cluster leaves it already")
	case v.verb == "resume" && !suspended:
		return errors.New("it is not suspended (after cordon or drain it is `kubectl hanse uncordon`)")
	case suspended && v.verb != "resume" && v.verb != "suspend":
		return fmt.Errorf("it is suspended: `kubectl hanse resume %s` first", peer.Name)
	}
	peer.Spec.Access = v.access
	return nil
}

// awaitDrained waits until the peer has no pods here, and tells which are left. A consumer that was not heard of does not
// know that it is to drain.
func awaitDrained(ctx context.Context, c client.Client, name string, told *progress) error {
	left := []string(nil)
	err := install.Until(ctx, name+" to move its pods away", func(ctx context.Context) (bool, error) {
		seen := take(ctx, c, scope{}, time.Time{}, partNamespaces, partShadowPods, partPeers)
		if err := seen.err(partNamespaces, partShadowPods); err != nil {
			return false, err
		}
		left = seen.podsOf(name)
		if len(left) > 0 {
			told.tell("Still here: " + some(left) + seen.unready(name))
		}
		return len(left) == 0, nil
	})
	if err != nil && len(left) > 0 {
		return fmt.Errorf("%w: still here: %s. %s goes on moving them; its PodDisruptionBudgets may hold them, or it may have no "+
			"room. Run this again to wait on; `kubectl hanse unpeer %s` ends them", err, some(left), name, name)
	}
	return err
}

// unready says why a peer is not ready, in brackets.
func (s *snapshot) unready(name string) string {
	peer := s.peer(name)
	if peer == nil {
		return ""
	}
	if ready := currentCondition(peer, v1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse {
		return " (" + ready.Message + ")"
	}
	return ""
}
