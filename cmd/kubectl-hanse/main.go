// Command kubectl-hanse is Hanse's client. With it in the path, `kubectl hanse` works. It needs nothing but access to
// the clusters: the chart is in it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func main() {
	klog.SetLogger(klog.Logger{}) // libraries do not talk to users
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// globalFlags are those that every verb takes.
type globalFlags struct {
	cluster   target
	namespace string
}

func newCommand() *cobra.Command {
	global := &globalFlags{}
	command := &cobra.Command{
		Use:   "kubectl-hanse",
		Short: "Share resources with Kubernetes clusters of other owners",
		Long: "Hanse shows what other clusters have to spare as virtual nodes of this one. Pods on such a node really run over\n" +
			"there, and kubectl cannot tell the difference.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl hanse"},
	}
	flags := command.PersistentFlags()
	flags.StringVar(&global.cluster.kubeconfig, "kubeconfig", "", "path of the kubeconfig; by default as kubectl finds it")
	flags.StringVar(&global.cluster.context, "context", "", "context of the kubeconfig to use; by default the current one")
	flags.StringVarP(&global.namespace, "namespace", "n", v1alpha1.SystemNamespace, "namespace that Hanse is installed in")
	for _, verb := range []func(*globalFlags) *cobra.Command{
		newInstallCommand, newUninstallCommand, newCheckCommand, newInviteCommand, newJoinCommand, newUnpeerCommand,
		newOffloadCommand, newUnoffloadCommand, newTableCommand, newExplainCommand, newPolicyCommand, newStatusCommand,
		newVersionCommand,
	} {
		command.AddCommand(verb(global))
	}
	command.AddCommand(newAccessCommands(global)...)
	command.AddCommand(newDecisionCommands(global)...)
	return command
}
