package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/version"
)

// versions is what `version` prints.
type versions struct {
	Client    string `json:"client"`
	Server    string `json:"server,omitempty"`
	ClusterID string `json:"clusterID,omitempty"`
}

func newVersionCommand(global *globalFlags) *cobra.Command {
	clientOnly, output := false, ""
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this client and of Hanse in the cluster",
		Example: `  kubectl hanse version
  kubectl hanse version --client
  kubectl hanse version -o json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return errors.New("--output is json")
			}
			found := versions{Client: version.Version}
			var err error
			if !clientOnly {
				err = askVersion(command.Context(), global, &found)
			}
			return errors.Join(printVersions(command, found, output), err)
		},
	}
	command.Flags().BoolVar(&clientOnly, "client", false, "do not ask the cluster")
	command.Flags().StringVarP(&output, "output", "o", "", "json; by default for people")
	return command
}

func askVersion(ctx context.Context, global *globalFlags, found *versions) error {
	c, err := global.cluster.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	info := &corev1.ConfigMap{}
	err = c.client.Get(ctx, client.ObjectKey{Namespace: global.namespace, Name: v1alpha1.ClusterInfo}, info)
	if err != nil {
		return fmt.Errorf("ask %s for its version of Hanse (is it installed?): %w", c.name, err)
	}
	found.Server, found.ClusterID = info.Data[v1alpha1.ClusterInfoVersion], info.Data[v1alpha1.ClusterInfoID]
	return nil
}

func printVersions(command *cobra.Command, found versions, output string) error {
	if output == "json" {
		return json.NewEncoder(command.OutOrStdout()).Encode(found)
	}
	if found.Server == "" {
		return say(command, "Client: %s\n", found.Client)
	}
	return say(command, "Client: %s\nServer: %s (cluster %s)\n", found.Client, found.Server, found.ClusterID)
}
