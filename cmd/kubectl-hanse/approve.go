package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

// A decisionVerb is an administrator's word on what a peer advertises.
type decisionVerb struct {
	verb, short, long string
	decision          string // value of AnnotationDecision
	wants             v1alpha1.AcknowledgementState
	done              string // what is told then, of the peer
}

var decisionVerbs = []decisionVerb{
	{
		verb: "accept", decision: v1alpha1.DecisionAccept, wants: v1alpha1.AcknowledgementAccepted,
		short: "Use what a peer offers, where a policy leaves that to you",
		long: "Accepts an advertisement that is pending, or that you have refused. That holds until the peer changes its terms:\n" +
			"anything but how much it has free. What a policy refuses, it goes on refusing. PEER is the name of the peer, or the\n" +
			"id of its cluster.",
		done: "is used: its virtual node takes pods",
	},
	{
		verb: "refuse", decision: v1alpha1.DecisionRefuse, wants: v1alpha1.AcknowledgementRefused,
		short: "Do not use what a peer offers",
		long: "Refuses an advertisement, whatever the policies say, until the peer changes its terms: anything but how much it has\n" +
			"free. Pods that run there stay; the virtual node takes no more of them. PEER is the name of the peer, or the id of\n" +
			"its cluster.",
		done: "is refused: its virtual node takes no more pods",
	},
}

// newDecisionCommands makes the verbs by which an administrator decides on advertisements.
func newDecisionCommands(global *globalFlags) []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range decisionVerbs {
		verb := peerVerb{
			verb: v.verb, short: v.short, long: v.long, await: "the peer is answered", timeout: 30 * time.Second, run: v.run,
		}
		commands = append(commands, verb.command(global))
	}
	return commands
}

// run decides about the peer of that name, or the one whose cluster has that id.
func (v decisionVerb) run(ctx context.Context, command *cobra.Command, c client.Client, flags *peerVerbFlags, name string) error {
	peer, err := peerNamed(ctx, c, name)
	if err != nil {
		return err
	}
	change := edit[*v1alpha1.Advertisement]{
		read: func(ctx context.Context) (*v1alpha1.Advertisement, error) { return advertisementOf(ctx, c, peer) },
		change: func(ad *v1alpha1.Advertisement) error {
			return v.decide(ad, peer.Name, clock.RealClock{}.Now())
		},
		what: v.verb + " the advertisement of " + peer.Name,
	}
	if flags.dry() {
		return change.print(ctx, command)
	}
	if err := change.write(ctx, c); err != nil {
		return err
	}
	if !flags.wait {
		return say(command, "The answer to the advertisement of %s is set to %s.\n", peer.Name, v.decision)
	}
	if err := v.await(ctx, c, peer); err != nil {
		return err
	}
	return say(command, "The advertisement of %s %s.\n", peer.Name, v.done)
}

// decide puts the decision on the advertisement, unless it makes no sense.
func (v decisionVerb) decide(ad *v1alpha1.Advertisement, peer string, now time.Time) error {
	if !ad.Spec.TimeToLive.After(now) {
		return fmt.Errorf("it has expired: its provider has to renew it (see `kubectl hanse check --peer %s`)", peer)
	}
	if v.decision == v1alpha1.DecisionAccept {
		if err := acceptable(ad); err != nil {
			return err
		}
	}
	if ad.Annotations == nil {
		ad.Annotations = map[string]string{}
	}
	ad.Annotations[v1alpha1.AnnotationDecision] = v.decision
	return nil
}

// acceptable says why an advertisement waits for nobody's word.
func acceptable(ad *v1alpha1.Advertisement) error {
	ack := ad.Status.Acknowledgement
	switch {
	case ack == nil:
		return fmt.Errorf("Hanse has not looked at it yet: try again") //nolint:staticcheck // Hanse is a name
	case ack.State == v1alpha1.AcknowledgementAccepted:
		return fmt.Errorf("it is not pending: it is accepted already")
	case ack.State == v1alpha1.AcknowledgementPending, ack.Reason == v1alpha1.ReasonRefusedByAdministrator:
		return nil
	default:
		return fmt.Errorf("it is not pending: it is refused: %s: %s", ack.Reason, printable(ack.Message))
	}
}

// await waits until the manager has acted on the decision.
func (v decisionVerb) await(ctx context.Context, c client.Client, peer *v1alpha1.Peer) error {
	var ack v1alpha1.Acknowledgement
	err := install.Until(ctx, "Hanse to answer "+peer.Name, func(ctx context.Context) (bool, error) {
		ad, err := advertisementOf(ctx, c, peer)
		if err != nil {
			return false, err
		}
		if ad.Annotations[v1alpha1.AnnotationDecision] != v.decision {
			return false, install.Final(fmt.Errorf("%s has changed its terms meanwhile: look at them with `kubectl hanse table`, and decide again", peer.Name))
		}
		if ad.Status.Acknowledgement != nil {
			ack = *ad.Status.Acknowledgement
		}
		return ack.State == v.wants, nil
	})
	if err != nil && ack.State != "" {
		return fmt.Errorf("%w: the answer is still %s: %s", err, ack.State, strings.TrimSpace(ack.Reason+" "+printable(ack.Message)))
	}
	return err
}

// peerNamed reads the Peer of that name, or the one of the cluster of that id.
func peerNamed(ctx context.Context, c client.Client, name string) (*v1alpha1.Peer, error) {
	peer, err := readPeer(ctx, c, name)
	if !apierrors.IsNotFound(err) {
		return peer, err
	}
	seen := take(ctx, c, scope{}, time.Time{}, partPeers)
	if err := seen.err(partPeers); err != nil {
		return nil, err
	}
	for i := range seen.peers.Items {
		if seen.peers.Items[i].Spec.ClusterID == name {
			return &seen.peers.Items[i], nil
		}
	}
	return nil, err
}

// advertisementOf reads our copy of what the peer advertises to us.
func advertisementOf(ctx context.Context, c client.Client, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
	if peer.Spec.ClusterID == "" {
		return nil, fmt.Errorf("there is no advertisement of %s: nothing is known of its cluster yet", peer.Name)
	}
	err := c.Get(ctx, key, ad)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no advertisement of %s here%s: %w", peer.Name,
			because(currentCondition(peer, v1alpha1.ConditionAdvertised)), err)
	}
	if err != nil {
		return nil, fmt.Errorf("read Advertisement %s: %w", key, err)
	}
	return ad, nil
}
