package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

var errPodsRun = errors.New("pods still run")

// checkIdle refuses while parting would end or move pods that nobody has spoken of.
func checkIdle(ctx context.Context, cluster install.Cluster, name string) error {
	away, err := cluster.PodsOn(ctx, v1alpha1.VirtualNodeName(name))
	if err != nil {
		return err
	}
	guests, err := guestsOf(ctx, cluster.Client, name)
	if err != nil {
		return err
	}
	var running []string
	if len(away) > 0 {
		slices.Sort(away)
		running = append(running, fmt.Sprintf("of this cluster in %s (%s)", name, some(away)))
	}
	if len(guests) > 0 {
		running = append(running, fmt.Sprintf("of %s in this cluster (%s)", name, some(guests)))
	}
	if len(running) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s. Say what becomes of them: --drain=wait evicts ours and keeps PodDisruptionBudgets, --drain=now "+
		"deletes ours at once; the peer evicts its own, for which it has five minutes. If the peer is gone for ever: --force",
		errPodsRun, strings.Join(running, "; "))
}

// part has Hanse part from the peer. A parting that goes on already takes a new manner.
func part(ctx context.Context, c client.Client, peer *v1alpha1.Peer, flags *unpeerFlags) error {
	asked := flags.drain != "" || flags.force
	err := changePeer(ctx, c, peer.Name, func(peer *v1alpha1.Peer) error {
		if asked || peer.DeletionTimestamp.IsZero() {
			peer.Spec.Parting = flags.parting()
		}
		return nil
	})
	if err != nil {
		return gone(err)
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, peer)); err != nil {
		return fmt.Errorf("delete Peer %s: %w", peer.Name, err)
	}
	return nil
}

// gone takes it for no error that somebody else was faster.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// awaitParted waits until the Peer is gone, and tells what it waits for itself.
func awaitParted(ctx context.Context, cluster install.Cluster, name string) error {
	told := &progress{report: cluster.Report}
	var ready *metav1.Condition
	err := until(ctx, "Peer "+name+" to go", func(ctx context.Context) (bool, error) {
		peer := &v1alpha1.Peer{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
		ready = meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && ready.Reason == v1alpha1.ReasonParting { // until then it speaks of before
			told.tell(ready.Message)
		}
		return false, nil
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w%s. The parting goes on by itself, and running this again waits on. --drain=now does not keep "+
		"PodDisruptionBudgets; if the peer is gone for ever: kubectl hanse unpeer %s --force", err, because(ready), name)
}

// whatStaysThere says what a peer that is not asked keeps of this cluster. It must be looked up before the Peer goes.
func whatStaysThere(ctx context.Context, c client.Client, peer *v1alpha1.Peer) ([]string, error) {
	var left []string
	if peer.HasRole(v1alpha1.RoleProvider) {
		twins, err := twinsAt(ctx, c, peer.Name)
		if err != nil {
			return nil, err
		}
		if len(twins) > 0 {
			left = append(left, "its namespaces for pods of this cluster: "+some(twins))
		}
		left = append(left, "the identity that this cluster had there")
	}
	if peer.HasRole(v1alpha1.RoleConsumer) {
		left = append(left, "its virtual node for this cluster, and the pods that are bound to it")
	}
	return append(left, "its Peer for this cluster, and that one's namespace"), nil
}

// twinsAt returns the names of the namespaces that the peer has for ours, as far as it has told.
func twinsAt(ctx context.Context, c client.Client, peer string) ([]string, error) {
	offloadings := &v1alpha1.NamespaceOffloadingList{}
	if err := c.List(ctx, offloadings); err != nil {
		return nil, fmt.Errorf("list namespace offloadings: %w", err)
	}
	var found []string
	for i := range offloadings.Items {
		for _, cluster := range offloadings.Items[i].Status.Clusters {
			if cluster.Peer == peer && cluster.Twin != "" {
				found = append(found, cluster.Twin)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// tellForced says what a forced parting could not do, and what it has left here.
func tellForced(ctx context.Context, command *cobra.Command, c client.Client, former peerLeft) error {
	name := former.name
	text := fmt.Sprintf("Not removed in %s, which was not asked:\n", name)
	for _, thing := range former.left {
		text += "  - " + printable(thing) + "\n"
	}
	stone, err := tombstoneOf(ctx, c, name)
	if err != nil {
		return err
	}
	if stone == nil {
		text += fmt.Sprintf("No record is kept: if %s comes back, its administrator has to run `kubectl hanse unpeer --force` there.\n", name)
	} else {
		text += fmt.Sprintf("Namespace %s keeps a record until %s. If %s comes back before, it learns from that to clean up by itself.\n",
			stone.Name, orElse(stone.Annotations[v1alpha1.AnnotationExpires], "it expires"), name)
	}
	return say(command, "%s", text)
}

// tombstoneOf returns the namespace that keeps the record of a forced parting, nil if there is none.
func tombstoneOf(ctx context.Context, c client.Client, peer string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	name := v1alpha1.TenantNamespace(peer)
	if err := c.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // none is an answer
		}
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	if ns.Labels[v1alpha1.LabelType] != v1alpha1.TypeTombstone {
		return nil, nil //nolint:nilnil // none is an answer
	}
	return ns, nil
}
