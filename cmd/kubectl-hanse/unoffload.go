package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
)

func newUnoffloadCommand(global *globalFlags) *cobra.Command {
	timeout := time.Duration(0)
	command := &cobra.Command{
		Use:   "unoffload NAMESPACE",
		Short: "Let new pods of a namespace run at home only",
		Long: "Ends the offloading of the namespace. Pods that run in other clusters stay there until they are deleted; the\n" +
			"namespaces that stand for this one over there go with the last of them.",
		Example: "  kubectl hanse unoffload shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			c, err := global.cluster.connect()
			if err != nil {
				return err
			}
			if err := unoffload(ctx, c.cluster(command), args[0]); err != nil {
				return explain(err, c.name)
			}
			return say(command, "Namespace %s is no longer offloaded.\n", args[0])
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait until it holds for new pods")
	return command
}

func unoffload(ctx context.Context, cluster install.Cluster, namespace string) error {
	offloading := &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName},
	}
	if err := client.IgnoreNotFound(cluster.Client.Delete(ctx, offloading)); err != nil {
		return fmt.Errorf("delete NamespaceOffloading in namespace %s: %w", namespace, err)
	}
	return cluster.WaitAtHome(ctx, namespace)
}
