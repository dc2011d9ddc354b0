// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/version"
)

type installFlags struct {
	clusterID   string
	image       string
	podCIDR     string
	addressPool string
	set         []string
	reset       bool
	writeFlags
}

func newInstallCommand(global *globalFlags) *cobra.Command {
	flags := &installFlags{}
	command := &cobra.Command{
		Use:   "install",
		Short: "Install Hanse in a cluster, or upgrade it",
		Long: "Puts Hanse into the cluster: its kinds, roles, policies and two Deployments. Doing it again upgrades, and changes\n" +
			"nothing that is as it should be: the image and all values that were set before stay, unless the flags say otherwise.\n" +
			"The cluster must run Kubernetes " + install.MinimumKubernetes + " or newer.",
		Example: `  # Install, with an id by which others will know this cluster
  kubectl hanse install --cluster-id lubeck

  # See what would be installed
  kubectl hanse install --cluster-id lubeck --dry-run=client -o yaml

  # Two replicas of the manager, and an image from somewhere else
  kubectl hanse install --image registry.example.com/hanse:v0.1.0 --set manager.replicas=2

  # Later: change one thing, and keep the rest
  kubectl hanse install --set manager.replicas=3`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return runInstall(command, global, flags) },
	}
	f := command.Flags()
	f.StringVar(&flags.clusterID, "cluster-id", "",
		"id by which peers know this cluster, a DNS label of at most 30 characters that can never be changed; by default one is made")
	f.StringVar(&flags.image, "image", "",
		"image of Hanse; by default the one that was installed, or else hanse.dev/hanse at this client's version")
	f.StringVar(&flags.podCIDR, "pod-cidr", "", "ranges of this cluster's pods, separated by commas; by default as the nodes say")
	f.StringVar(&flags.addressPool, "address-pool", "", "ranges, separated by commas, in which peers' pods are seen whose own are taken here")
	f.StringArrayVar(&flags.set, "set", nil, "value of the chart, as key=value; may be given several times")
	f.BoolVar(&flags.reset, "reset-values", false, "forget the values that were set before, the image among them")
	flags.bind(f, 5*time.Minute, "Hanse runs")
	return command
}

// setIn changes the values of the chart as the flags say. --set comes last.
func (f *installFlags) setIn(values map[string]any) error {
	said := map[string]string{}
	for key, value := range map[string]string{"clusterID": f.clusterID, "podCIDR": f.podCIDR, "addressPool": f.addressPool} {
		if value != "" {
			said[key] = value
		}
	}
	if f.image != "" { // without a tag, it is not the one of the image before
		said["image.repository"], said["image.tag"] = splitImage(f.image)
	}
	for key, value := range said {
		if err := strvals.ParseLiteralInto(key+"="+value, values); err != nil {
			return fmt.Errorf("set %s: %w", key, err)
		}
	}
	for _, set := range f.set {
		if err := strvals.ParseInto(set, values); err != nil {
			return fmt.Errorf("read --set %s: %w", set, err)
		}
	}
	return nil
}

// splitImage takes a tag or digest off the name of an image. A colon before the last slash is that of a port.
func splitImage(image string) (repository, tag string) {
	if name, digest, found := strings.Cut(image, "@"); found {
		return name, digest
	}
	path := strings.LastIndex(image, "/") + 1
	name, tag, _ := strings.Cut(image[path:], ":")
	return image[:path] + name, tag
}

func runInstall(command *cobra.Command, global *globalFlags, flags *installFlags) error {
	if err := flags.validate(); err != nil {
		return err
	}
	values := map[string]any{}
	if err := flags.setIn(values); err != nil {
		return err
	}
	if global.namespace != "" {
		return errors.New("--namespace does not say where Hanse is to be installed: say --hanse-namespace " + global.namespace)
	}
	options := install.Options{Namespace: orElse(global.system, v1alpha1.SystemNamespace), Version: version.Version, Values: values}
	if flags.dry() {
		manifest, err := install.Render(options)
		if err != nil {
			return err
		}
		var objects []client.Object
		for _, object := range slices.Concat(manifest.Definitions, manifest.Objects) {
			objects = append(objects, object)
		}
		return printObjects(command.OutOrStdout(), objects...)
	}
	return global.withHanse(command, flags.timeout, func(ctx context.Context, c *connection, system string) error {
		options.Namespace = system
		return doInstall(ctx, command, c, options, flags)
	})
}

func doInstall(ctx context.Context, command *cobra.Command, c *connection, options install.Options, flags *installFlags) error {
	cluster := c.cluster(command)
	var err error
	if !flags.reset {
		options.Values, err = valuesWith(ctx, cluster, options.Namespace, flags)
	}
	if err != nil {
		return err
	}
	if options.KubernetesVersion, err = install.CheckKubernetes(c.discovery); err != nil {
		return err
	}
	manifest, err := install.Render(options)
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, manifest); err != nil {
		return err
	}
	if flags.wait {
		if err := cluster.WaitAvailable(ctx, manifest); err != nil {
			return fmt.Errorf("%w (see `kubectl -n %s get pods`)", err, options.Namespace)
		}
	}
	return say(command, "Hanse is installed in %s, with image %s.\n", c.name, manifest.Image())
}

// valuesWith are the values by which Hanse was installed before, changed as the flags say.
func valuesWith(ctx context.Context, cluster install.Cluster, namespace string, flags *installFlags) (map[string]any, error) {
	kept, err := cluster.Values(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if len(kept) == 0 {
		kept = map[string]any{}
	}
	return kept, flags.setIn(kept)
}

func newUninstallCommand(global *globalFlags) *cobra.Command {
	removal := install.Removal{}
	timeout := time.Duration(0)
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Hanse from a cluster, and everything that it made there",
		Long: "Leaves all peers, removes their namespaces and virtual nodes, and then Hanse with its kinds and policies. The\n" +
			"cluster is then as it was before. Nothing is removed while pods still run at peers, or pods of others here.",
		Example: `  # Remove Hanse
  kubectl hanse uninstall

  # Also when it no longer works, a peer is gone for ever, or pods still run remotely (they end)
  kubectl hanse uninstall --force`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return global.withHanse(command, timeout, func(ctx context.Context, c *connection, system string) error {
				removal.Namespace = system
				if err := c.cluster(command).Remove(ctx, removal); err != nil {
					return err
				}
				return say(command, "Hanse is removed from %s.\n", c.name)
			})
		},
	}
	flags := command.Flags()
	flags.BoolVar(&removal.Force, "force", false, "end what still runs, and clean up without Hanse where it does not")
	flags.DurationVar(&removal.Timeout, "cleanup-timeout", time.Minute, "how long Hanse itself is given to clean up")
	flags.DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait in all")
	return command
}

// versions is what `version` prints.
type versions struct {
	Client    string `json:"client"`
	Server    string `json:"server,omitempty"`
	ClusterID string `json:"clusterID,omitempty"`
}

func (v versions) print(d *document) {
	d.printf("Client: %s\n", v.Client)
	if v.Server != "" {
		d.printf("Server: %s (cluster %s)\n", v.Server, v.ClusterID)
	}
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
			found := versions{Client: version.Version}
			var err error
			if !clientOnly {
				err = global.withHanse(command, 10*time.Second, func(ctx context.Context, c *connection, system string) error {
					seen := take(ctx, c.client, scope{system: system}, time.Time{}, partInfo)
					found.Server, found.ClusterID = seen.version, seen.clusterID
					if err := seen.err(partInfo); err != nil || seen.version != "" {
						return err
					}
					return fmt.Errorf("%s does not say its version of Hanse (is it installed?)", c.name)
				})
			}
			return errors.Join(show(command.OutOrStdout(), found, output, found.print), err)
		},
	}
	command.Flags().BoolVar(&clientOnly, "client", false, "do not ask the cluster")
	command.Flags().VarP(oneOf(&output, "json", "yaml"), "output", "o", "json or yaml; by default for people")
	return command
}
