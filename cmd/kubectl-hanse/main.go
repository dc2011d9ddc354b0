// Command kubectl-hanse is Hanse's client. With it in the path, `kubectl hanse` works. It needs nothing but access to
// the clusters: the chart is in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	for _, verb := range peerVerbs {
		command.AddCommand(verb.command(global))
	}
	return command
}

// within connects to the cluster and does a verb's work there, for no longer than the timeout.
func (g *globalFlags) within(
	command *cobra.Command, timeout time.Duration, work func(context.Context, *connection) error,
) error {
	ctx, cancel := context.WithTimeout(command.Context(), timeout)
	defer cancel()
	c, err := g.cluster.connect()
	if err != nil {
		return err
	}
	return explain(work(ctx, c), c.name)
}

// waitFlags are those of verbs that wait for what they have asked for.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (f *waitFlags) bind(flags *pflag.FlagSet, timeout time.Duration, what string) {
	flags.BoolVar(&f.wait, "wait", true, "wait until "+what)
	flags.DurationVar(&f.timeout, "timeout", timeout, "how long to wait")
}

// dryRunFlags are those of verbs that can print what they would write.
type dryRunFlags struct {
	dryRun string
	output string
}

func (f *dryRunFlags) bind(flags *pflag.FlagSet) {
	f.dryRun = "none"
	flags.Var(oneOf(&f.dryRun, "none", "client"), "dry-run", "none, or client: print what would be written, and write nothing")
	flags.VarP(oneOf(&f.output, "yaml"), "output", "o", "yaml, with --dry-run=client")
}

// validate reports flags that make no sense.
func (f *dryRunFlags) validate() error {
	if f.output != "" && !f.dry() {
		return errors.New("--output is for --dry-run=client")
	}
	return nil
}

// dry reports whether nothing is to be written.
func (f *dryRunFlags) dry() bool { return f.dryRun == "client" }
