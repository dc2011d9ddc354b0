// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/peers"
)

// agentlessFlags are those of a join without an invitation.
type agentlessFlags struct {
	agentless  bool
	kubeconfig string
	namespaces []string
}

func (f *agentlessFlags) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&f.agentless, "agentless", false, "the other cluster has no Hanse: run pods in some of its namespaces")
	flags.StringVar(&f.kubeconfig, "remote-kubeconfig", "", "with --agentless, path of a kubeconfig for the other cluster; its current context is used")
	flags.StringSliceVar(&f.namespaces, "namespaces", nil, "with --agentless, namespaces of the other cluster in which pods may run")
	command.MarkFlagsRequiredTogether("agentless", "remote-kubeconfig", "namespaces")
	command.MarkFlagsMutuallyExclusive("agentless", "mutual") // which needs Hanse on both sides
}

// validate reports flags that make no sense.
func (f *agentlessFlags) validate(as string) error {
	if f.agentless && as == "" {
		return errors.New("--agentless needs --as")
	}
	for _, name := range f.namespaces {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("--namespaces: %q is no name of a namespace", name)
		}
	}
	return nil
}

// put makes the Peer, which may be a new one, stand for the cluster without Hanse.
func (f *agentlessFlags) put(peer *v1alpha1.Peer) error {
	switch {
	case !peer.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted: try again when it is gone")
	case peer.ResourceVersion != "" && !peer.Agentless():
		return errors.New("it is a peer with Hanse: say another name with --as")
	}
	peer.Spec.Mode = v1alpha1.ModeAgentless
	peer.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider}
	peer.Spec.Namespaces = f.namespaces
	return nil
}

func runAgentless(command *cobra.Command, global *globalFlags, flags *joinFlags) error {
	credentials, err := flattenKubeconfig(flags.kubeconfig, flags.as)
	if err != nil {
		return err
	}
	if flags.dry() {
		peer := blankPeer(flags.as)
		return errors.Join(flags.put(peer), printObjects(command.OutOrStdout(), withSecret(peer, v1alpha1.LinkSecret, credentials)...))
	}
	return global.within(command, flags.timeout, func(ctx context.Context, c *connection) error {
		if err := flags.joinAgentless(ctx, c.client, flags.as, credentials); err != nil || !flags.wait {
			return err
		}
		return awaitAgentless(ctx, command, c.client, flags.as)
	})
}

// joinAgentless writes the Peer and the credentials for it.
func (f *agentlessFlags) joinAgentless(ctx context.Context, c client.Client, name string, credentials map[string][]byte) error {
	peer := blankPeer(name)
	if err := write(ctx, c, peer, func() error { return f.put(peer) }); err != nil {
		return err
	}
	return putTenantSecret(ctx, c, name, v1alpha1.LinkSecret, credentials)
}

// awaitAgentless waits until the manager has looked at the peer, and tells what it found.
func awaitAgentless(ctx context.Context, command *cobra.Command, c client.Client, name string) error {
	var ready *metav1.Condition
	err := install.Until(ctx, "the manager to look at Peer "+name, func(ctx context.Context) (bool, error) {
		peer, err := readPeer(ctx, c, name)
		ready = currentCondition(peer, v1alpha1.ConditionReady)
		return ready != nil && ready.Reason != v1alpha1.ReasonPending && ready.Reason != v1alpha1.ReasonCredentialsMissing, err
	})
	if err != nil {
		return err
	}
	return say(command, "%s is an agentless peer%s\n", name, because(ready))
}

// flattenKubeconfig reads a kubeconfig and returns, for a Secret, its current context alone, with all that it needs: whatever
// would have Hanse run a program or read a file is refused.
func flattenKubeconfig(path, peer string) (map[string][]byte, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("read --remote-kubeconfig: %w", err)
	}
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		return nil, fmt.Errorf("read the current context of %s: %w", path, err)
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return nil, fmt.Errorf("read the files that %s names: %w", path, err)
	}
	// Hanse takes no credentials that lead into any other namespace by default. Those to work in are in the Peer.
	config.Contexts[config.CurrentContext].Namespace = v1alpha1.TenantNamespace(peer)
	config.Extensions = nil
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode the kubeconfig: %w", err)
	}
	data := map[string][]byte{v1alpha1.LinkSecretKey: text}
	if _, err := peers.ParseCredentials(data); err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w. A kubeconfig with a token of a ServiceAccount there can", path, err)
	}
	return data, nil
}
