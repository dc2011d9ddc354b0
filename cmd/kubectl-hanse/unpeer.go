package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

func newUnpeerCommand(global *globalFlags) *cobra.Command {
	force, timeout := false, time.Duration(0)
	command := &cobra.Command{
		Use:   "unpeer NAME",
		Short: "Part from another cluster",
		Long: "Removes the Peer and what was made for it in this cluster: its virtual node, its namespaces, its credentials. On the\n" +
			"other side the same is done there. Nothing is removed while pods of this cluster run there, or pods of the peer here.",
		Example: `  kubectl hanse unpeer hamburg --context lubeck
  kubectl hanse unpeer lubeck --context hamburg`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			c, err := global.cluster.connect()
			if err != nil {
				return err
			}
			if err := unpeer(ctx, c.cluster(command), args[0], force); err != nil {
				return explain(err, c.name)
			}
			return say(command, "%s is no longer a peer of %s.\n", args[0], c.name)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&force, "force", false, "end the pods that still run")
	flags.DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait until nothing is left")
	return command
}

var errPodsRun = errors.New("pods still run")

func unpeer(ctx context.Context, cluster install.Cluster, name string, force bool) error {
	peer := &v1alpha1.Peer{}
	if err := cluster.Client.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
		return fmt.Errorf("read Peer %s: %w", name, err)
	}
	if !force {
		if err := checkIdle(ctx, cluster, name); err != nil {
			return err
		}
	}
	if err := client.IgnoreNotFound(cluster.Client.Delete(ctx, peer)); err != nil {
		return fmt.Errorf("delete Peer %s: %w", name, err)
	}
	return until(ctx, "Peer "+name+" to go", func(ctx context.Context) (bool, error) {
		err := cluster.Client.Get(ctx, client.ObjectKey{Name: name}, peer)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// checkIdle refuses while ending the relation would end pods.
func checkIdle(ctx context.Context, cluster install.Cluster, name string) error {
	away, err := cluster.PodsOn(ctx, v1alpha1.VirtualNodeName(name))
	if err != nil {
		return err
	}
	if len(away) > 0 {
		return fmt.Errorf("%w in %s: %s; delete them, or say --force", errPodsRun, name, strings.Join(away, ", "))
	}
	twins := &corev1.NamespaceList{}
	err = cluster.Client.List(ctx, twins, client.MatchingLabels{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: name,
	})
	if err != nil {
		return fmt.Errorf("list namespaces of %s: %w", name, err)
	}
	for i := range twins.Items {
		guests := &v1alpha1.ShadowPodList{}
		if err := cluster.Client.List(ctx, guests, client.InNamespace(twins.Items[i].Name), client.Limit(1)); err != nil {
			return fmt.Errorf("list pods of %s: %w", name, err)
		}
		if len(guests.Items) > 0 {
			return fmt.Errorf("%w here for %s, in namespace %s; have them deleted there, or say --force",
				errPodsRun, name, twins.Items[i].Name)
		}
	}
	return nil
}
