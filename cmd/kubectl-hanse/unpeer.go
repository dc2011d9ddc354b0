// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

type unpeerFlags struct {
	writeFlags
	drain  string
	force  bool
	forget bool
	// deleteData lets volumes go with the peering.
	deleteData bool
}

func newUnpeerCommand(global *globalFlags) *cobra.Command {
	flags := &unpeerFlags{}
	command := &cobra.Command{
		Use:   "unpeer PEER",
		Short: "Stop being a peer of another cluster",
		Long: "Ends both directions at once. Our pods are moved away from the peer, the peer is asked to move its pods away from\n" +
			"here, and then each side removes what it has made for the other, so that nothing is left: it is enough to say this\n" +
			"on one side. While pods run, it is refused until --drain says what becomes of them, and while claims have volumes on\n" +
			"the other side until they are deleted or --delete-data says that their data may go.\n\n" +
			"If the peer does not answer within five minutes, what it has here ends without it. Our own pods at the peer are\n" +
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
				return runUnpeer(ctx, command, c.client, flags, args[0])
			})
		},
	}
	f := command.Flags()
	f.Var(oneOf(&flags.drain, "wait", "now"), "drain", "what becomes of our pods at the peer: wait (they are evicted, which keeps PodDisruptionBudgets) or now (they are deleted)")
	f.BoolVar(&flags.force, "force", false, "wait for nothing at the peer: the peer is gone for ever, or cannot be asked")
	f.BoolVar(&flags.forget, "forget", false, "with --force, keep no record for a peer that comes back")
	f.BoolVar(&flags.deleteData, "delete-data", false, "delete our claims whose volumes are at the peer, and what the peer has claimed here, with their data")
	flags.bind(f, 10*time.Minute, "nothing is left")
	return command
}

// validate reports flags that make no sense.
func (f *unpeerFlags) validate() error {
	switch {
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
	parting := f.manner()
	if f.deleteData {
		parting.Volumes = v1alpha1.DeleteVolumes
	}
	return parting
}

func (f *unpeerFlags) manner() *v1alpha1.PeerParting {
	switch {
	case f.forget:
		return &v1alpha1.PeerParting{Mode: v1alpha1.PartingForgotten, Drain: v1alpha1.DrainNow}
	case f.force:
		return &v1alpha1.PeerParting{Mode: v1alpha1.PartingForced, Drain: v1alpha1.DrainNow}
	case f.drain == "now":
		return &v1alpha1.PeerParting{Mode: v1alpha1.PartingAgreed, Drain: v1alpha1.DrainNow}
	default:
		return &v1alpha1.PeerParting{Mode: v1alpha1.PartingAgreed, Drain: v1alpha1.DrainWait}
	}
}

// asked reports whether it was said what becomes of pods.
func (f *unpeerFlags) asked() bool { return f.drain != "" || f.force }

// part tells the Peer how to part. If Hanse leaves the peer already, it may be told another manner.
func (f *unpeerFlags) part(peer *v1alpha1.Peer) {
	if f.asked() || f.deleteData || peer.DeletionTimestamp.IsZero() {
		peer.Spec.Parting = f.parting()
	}
}

// check refuses to part while something would be lost of which nothing was said.
func (f *unpeerFlags) check(ctx context.Context, c client.Client, seen *snapshot, peer *v1alpha1.Peer) error {
	if !f.asked() {
		if err := seen.checkIdle(peer); err != nil {
			return err
		}
	}
	if f.deleteData || f.force {
		return nil
	}
	return checkData(ctx, c, peer)
}

func runUnpeer(ctx context.Context, command *cobra.Command, c client.Client, flags *unpeerFlags, name string) error {
	peer, err := readPeer(ctx, c, name)
	if err != nil {
		return err
	}
	if flags.dry() {
		flags.part(peer)
		return printObjects(command.OutOrStdout(), peer)
	}
	// What the Peer leaves behind is looked up before the Peer goes.
	parts := []part{partPeers, partOffloadings, partNamespaces, partShadowPods, partVirtualNodes, partPodsAway}
	seen := take(ctx, c, scope{}, time.Time{}, parts...)
	if err := seen.err(parts...); err != nil {
		return err
	}
	left := seen.notRemoved(peer)
	if err := flags.check(ctx, c, seen, peer); err != nil {
		return err
	}
	if flags.deleteData {
		if err := deleteDataAt(ctx, c, name, reporter(command)); err != nil {
			return err
		}
	}
	if err := leavePeer(ctx, c, flags, peer); err != nil {
		return err
	}
	if !flags.wait {
		return say(command, "This cluster leaves %s: see `kubectl hanse status %s`.\n", name, name)
	}
	if err := awaitUnpeered(ctx, c, peer, &progress{report: reporter(command)}); err != nil {
		return err
	}
	if err := say(command, "%s is no longer a peer of this cluster.\n", name); err != nil || !flags.force {
		return err
	}
	return errors.Join(say(command, "%s", left), tellRecord(ctx, command, c, name))
}

// leavePeer deletes the Peer. That it is gone already is no error.
func leavePeer(ctx context.Context, c client.Client, flags *unpeerFlags, peer *v1alpha1.Peer) error {
	err := changePeer(ctx, c, peer.Name, flags.part)
	if err == nil {
		err = c.Delete(ctx, peer)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("leave %s: %w", peer.Name, err)
	}
	return nil
}

var errPodsRun = errors.New("pods still run")

// checkIdle refuses to begin an unpeering that would end or move pods that nobody has spoken of.
func (s *snapshot) checkIdle(peer *v1alpha1.Peer) error {
	name := peer.Name
	ours, theirs := s.podsOn(v1alpha1.VirtualNodeName(name)), s.podsOf(name)
	var running []string
	if len(ours) > 0 {
		running = append(running, fmt.Sprintf("of this cluster in %s (%s)", name, some(ours)))
	}
	if len(theirs) > 0 {
		running = append(running, fmt.Sprintf("of %s in this cluster (%s)", name, some(theirs)))
	}
	if len(running) == 0 || !peer.DeletionTimestamp.IsZero() {
		return nil
	}
	return fmt.Errorf("%w: %s. Say what becomes of them: --drain=wait evicts ours and keeps PodDisruptionBudgets, --drain=now "+
		"deletes ours at once; the peer evicts its own, for which it has five minutes. If the peer is gone for ever: --force",
		errPodsRun, strings.Join(running, "; "))
}

// awaitUnpeered waits until this very Peer is gone, and tells what it waits for itself. Another of its name may follow at
// once, when the cluster is discovered in the network.
func awaitUnpeered(ctx context.Context, c client.Client, unpeered *v1alpha1.Peer, told *progress) error {
	name := unpeered.Name
	return install.Until(ctx, "Peer "+name+" to go", func(ctx context.Context) (bool, error) {
		peer := &v1alpha1.Peer{}
		found, err := read(ctx, c, "", name, peer)
		if err != nil || !found || peer.UID != unpeered.UID {
			return err == nil, err
		}
		ready := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && ready.Reason == v1alpha1.ReasonParting { // until then it speaks of before
			told.tell(ready.Message)
		}
		return false, fmt.Errorf("it is still there%s. The unpeering goes on by itself, and running this again waits on. --drain=now does not "+
			"keep PodDisruptionBudgets; if the peer is gone for ever: kubectl hanse unpeer %s --force", because(ready), name)
	})
}

// notRemoved says what a forced unpeering leaves at the peer, which is not asked.
func (s *snapshot) notRemoved(peer *v1alpha1.Peer) string {
	text := &document{}
	text.printf("Not removed in %s, which was not asked:\n", peer.Name)
	if twins := s.twinsAt(peer.Name); len(twins) > 0 && peer.HasRole(v1alpha1.RoleProvider) {
		text.printf("  - its namespaces for pods of this cluster: %s\n", printable(some(twins)))
	}
	if peer.HasRole(v1alpha1.RoleProvider) {
		text.printf("  - the identity that this cluster had there\n")
	}
	if peer.HasRole(v1alpha1.RoleConsumer) {
		text.printf("  - its virtual node for this cluster, and the pods that are bound to it\n")
	}
	text.printf("  - its Peer for this cluster, and that one's namespace\n")
	return text.String()
}

// tellRecord says which record of a forced unpeering lies here.
func tellRecord(ctx context.Context, command *cobra.Command, c client.Client, name string) error {
	record := &corev1.Namespace{}
	found, err := read(ctx, c, "", v1alpha1.TenantNamespace(name), record)
	if err != nil {
		return err
	}
	if !found || record.Labels[v1alpha1.LabelType] != v1alpha1.TypeTombstone {
		return say(command, "No record is kept: if %s comes back, its administrator has to run `kubectl hanse unpeer --force` there.\n", name)
	}
	return say(command, "Namespace %s keeps a record until %s. If %s comes back before, it learns from that to clean up by itself.\n",
		record.Name, orElse(record.Annotations[v1alpha1.AnnotationExpires], "it expires"), name)
}
