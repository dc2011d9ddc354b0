// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

// A peerVerb changes what a peer may do here as a consumer (access), or whether what it offers is used (decision).
type peerVerb struct {
	verb, short, long string
	access            v1alpha1.PeerAccess
	decision          string // value of AnnotationDecision
	wants             v1alpha1.AcknowledgementState
	await             string // what is waited for, if anything
	timeout           time.Duration
	asked, done       string // what is told of the peer without waiting, and at the end
}

var peerVerbs = []peerVerb{
	{
		verb: "cordon", access: v1alpha1.AccessCordoned, short: "Take no more pods of a peer",
		long: "The pods that the peer has here stay, and are made again here if they are lost. It gets no more of them: its virtual\n" +
			"node for this cluster takes no more pods.",
		done: "%s runs no more pods here than it has.\n",
	},
	{
		verb: "uncordon", access: v1alpha1.AccessOpen, short: "Take pods of a peer again, after cordon or drain",
		long: "Ends what cordon and drain have begun.",
		done: "%s may run pods here.\n",
	},
	{
		verb: "drain", access: v1alpha1.AccessDraining, short: "Ask a peer to move its pods out of this cluster",
		long: "Takes no more pods of the peer, and asks it to move those that it has here. The peer evicts them by itself and keeps\n" +
			"its own PodDisruptionBudgets, so that may take long. Nothing is ended here by force: for that there is `unpeer`.",
		await: "the peer has no pods here", timeout: 10 * time.Minute,
		asked: "%s is asked to move its pods away.\n",
		done:  "%s has no pods here any more, and gets none until `kubectl hanse uncordon`.\n",
	},
	{
		verb: "suspend", access: v1alpha1.AccessSuspended, short: "Let a peer do nothing here for now, not even read",
		long: "Takes back the peer's rights here until `kubectl hanse resume`. Its pods run on, and it sees and changes nothing of\n" +
			"them meanwhile. Connections that are open already end within the minutes that the API server gives them.",
		done: "%s may do nothing here until `kubectl hanse resume`; its pods run on.\n",
	},
	{
		verb: "resume", access: v1alpha1.AccessOpen, short: "Let a suspended peer work here again",
		long: "Gives a suspended peer its rights here back.",
		done: "%s may run pods here.\n",
	},
	{
		verb: "accept", decision: v1alpha1.DecisionAccept, wants: v1alpha1.AcknowledgementAccepted,
		short: "Use what a peer offers, where a policy leaves that to you",
		long: "Accepts an advertisement that is pending, or that you have refused. That holds until the peer changes its terms:\n" +
			"anything but how much it has free. What a policy refuses, it goes on refusing. PEER is the name of the peer, or the\n" +
			"id of its cluster.",
		await: "the peer is answered",
		asked: "The answer to the advertisement of %s is set to Accept.\n",
		done:  "The advertisement of %s is used: its virtual node takes pods.\n",
	},
	{
		verb: "refuse", decision: v1alpha1.DecisionRefuse, wants: v1alpha1.AcknowledgementRefused,
		short: "Do not use what a peer offers",
		long: "Refuses an advertisement, whatever the policies say, until the peer changes its terms: anything but how much it has\n" +
			"free. Pods that run there stay; the virtual node takes no more of them. PEER is the name of the peer, or the id of\n" +
			"its cluster.",
		await: "the peer is answered",
		asked: "The answer to the advertisement of %s is set to Refuse.\n",
		done:  "The advertisement of %s is refused: its virtual node takes no more pods.\n",
	},
}

func (v peerVerb) command(global *globalFlags) *cobra.Command {
	flags := &writeFlags{waitFlags: waitFlags{timeout: cmp.Or(v.timeout, 30*time.Second)}}
	command := &cobra.Command{
		Use: v.verb + " PEER", Short: v.short, Long: v.long,
		Example: fmt.Sprintf("  kubectl hanse %s lubeck\n\n  # Only the object\n  kubectl hanse %[1]s lubeck --dry-run=client -o yaml", v.verb),
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
	if v.await != "" {
		flags.waitFlags.bind(command.Flags(), flags.timeout, v.await)
	}
	return command
}

func (v peerVerb) run(ctx context.Context, command *cobra.Command, c client.Client, flags *writeFlags, name string) error {
	peer, err := peerNamed(ctx, c, name)
	if err != nil {
		return err
	}
	var object client.Object = peer
	mutate, wait := func() error { return v.setAccess(peer) }, awaitDrained
	if v.decision != "" {
		ad, err := advertisementOf(ctx, c, peer)
		if err != nil {
			return err
		}
		object, mutate, wait = ad, func() error { return v.decide(ad, peer.Name, clock.RealClock{}.Now()) }, v.awaitAnswer
	}
	if flags.dry() {
		if err := mutate(); err != nil {
			return err
		}
		return printObjects(command.OutOrStdout(), object)
	}
	if err := write(ctx, c, object, mutate); err != nil {
		return err
	}
	if v.await != "" && !flags.wait {
		return say(command, v.asked, peer.Name)
	}
	if v.await != "" {
		if err := wait(ctx, c, peer, &progress{report: reporter(command)}); err != nil {
			return err
		}
	}
	return say(command, v.done, peer.Name)
}

// setAccess sets the access. What was suspended is only resumed: no other verb gives it rights by the way.
func (v peerVerb) setAccess(peer *v1alpha1.Peer) error {
	suspended := peer.Access() == v1alpha1.AccessSuspended
	switch {
	case !peer.HasRole(v1alpha1.RoleConsumer):
		return fmt.Errorf("it runs no pods here: it is no consumer. To run no more pods of this cluster at the peer: kubectl cordon %s",
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
func awaitDrained(ctx context.Context, c client.Client, peer *v1alpha1.Peer, told *progress) error {
	name := peer.Name
	return install.Until(ctx, name+" to move its pods away", func(ctx context.Context) (bool, error) {
		seen := take(ctx, c, scope{}, time.Time{}, partNamespaces, partShadowPods, partPeers)
		if err := seen.err(partNamespaces, partShadowPods); err != nil {
			return false, err
		}
		left := seen.podsOf(name)
		if len(left) == 0 {
			return true, nil
		}
		why := ""
		if now := seen.peer(name); now != nil && !meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionReady) {
			why = because(currentCondition(now, v1alpha1.ConditionReady))
		}
		told.tell("Still here: " + some(left) + why)
		return false, fmt.Errorf("still here: %s. %s goes on moving them; its PodDisruptionBudgets may hold them, or it may have no "+
			"room. Run this again to wait on; `kubectl hanse unpeer %s` ends them", some(left), name, name)
	})
}

// decide puts the decision on the advertisement, unless that makes no sense or nobody's word is waited for.
func (v peerVerb) decide(ad *v1alpha1.Advertisement, peer string, now time.Time) error {
	ack := ad.Status.Acknowledgement
	switch {
	case !ad.Spec.TimeToLive.After(now):
		return fmt.Errorf("it has expired: its provider has to renew it (see `kubectl hanse check --peer %s`)", peer)
	case v.decision == v1alpha1.DecisionRefuse:
	case ack == nil:
		return errors.New("Hanse has not looked at it yet: try again") //nolint:staticcheck // Hanse is a name
	case ack.State == v1alpha1.AcknowledgementAccepted:
		return errors.New("it is not pending: it is accepted already")
	case ack.State != v1alpha1.AcknowledgementPending && ack.Reason != v1alpha1.ReasonRefusedByAdministrator:
		return fmt.Errorf("it is not pending: it is refused: %s: %s", ack.Reason, printable(ack.Message))
	}
	metav1.SetMetaDataAnnotation(&ad.ObjectMeta, v1alpha1.AnnotationDecision, v.decision)
	return nil
}

// awaitAnswer waits until the manager has acted on the decision.
func (v peerVerb) awaitAnswer(ctx context.Context, c client.Client, peer *v1alpha1.Peer, _ *progress) error {
	return install.Until(ctx, "Hanse to answer "+peer.Name, func(ctx context.Context) (bool, error) {
		ad, err := advertisementOf(ctx, c, peer)
		if err != nil {
			return false, err
		}
		ack := ad.Status.Acknowledgement
		switch {
		case ad.Annotations[v1alpha1.AnnotationDecision] != v.decision:
			return false, install.Final(fmt.Errorf("%s has changed its terms meanwhile: look at them with `kubectl hanse table`, and decide again", peer.Name))
		case ack == nil || ack.State == v.wants:
			return ack != nil, nil
		default:
			return false, fmt.Errorf("the answer is still %s: %s", ack.State, strings.TrimSpace(ack.Reason+" "+printable(ack.Message)))
		}
	})
}

// peerNamed reads the Peer of that name, or the one of the cluster of that id.
func peerNamed(ctx context.Context, c client.Client, name string) (*v1alpha1.Peer, error) {
	seen := take(ctx, c, scope{}, time.Time{}, partPeers)
	if peer := seen.peer(name); peer != nil {
		return peer, nil
	}
	if i := slices.IndexFunc(seen.peers.Items, func(p v1alpha1.Peer) bool { return p.Spec.ClusterID == name }); i >= 0 {
		return &seen.peers.Items[i], nil
	}
	return nil, cmp.Or(seen.err(partPeers), noPeer(name))
}

// advertisementOf reads our copy of what the peer advertises to us.
func advertisementOf(ctx context.Context, c client.Client, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	if peer.Spec.ClusterID == "" {
		return nil, fmt.Errorf("there is no advertisement of %s: nothing is known of its cluster yet", peer.Name)
	}
	found, err := read(ctx, c, v1alpha1.TenantNamespace(peer.Name), peer.Spec.ClusterID, ad)
	if err == nil && !found {
		err = fmt.Errorf("there is no advertisement of %s here%s", peer.Name,
			because(currentCondition(peer, v1alpha1.ConditionAdvertised)))
	}
	return ad, err
}
