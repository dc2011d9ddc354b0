// SPDX-License-Identifier: Apache-2.0

// Command kubectl-hanse is Hanse's client. With it in the path, `kubectl hanse` works. It needs nothing but access to
// the clusters: the chart is in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/version"
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
	kubeconfig, context string // where the cluster is found
	namespace           string // of users, as kubectl takes it; "" is that of the context, or all
	system              string // that Hanse is installed in; "" is where it is found
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
	flags.StringVar(&global.kubeconfig, "kubeconfig", "", "path of the kubeconfig; by default as kubectl finds it")
	flags.StringVar(&global.context, "context", "", "context of the kubeconfig to use; by default the current one")
	flags.StringVarP(&global.namespace, "namespace", "n", "", "namespace that the command is about; by default that of the context, or all")
	flags.StringVar(&global.system, "hanse-namespace", "",
		"namespace that Hanse is installed in; by default where it is found, and "+v1alpha1.SystemNamespace+" for a new installation")
	for _, verb := range []func(*globalFlags) *cobra.Command{
		newInstallCommand, newUninstallCommand, newCheckCommand, newInviteCommand, newJoinCommand, newMembersCommand, newUnpeerCommand,
		newOffloadCommand, newUnoffloadCommand, newMoveCommand, newTableCommand, newExplainCommand, newPolicyCommand, newStatusCommand,
		newRequestCommand, newApplicationsCommand, newAuctionCommand, newAccountCommand, newTestCommand, newBenchCommand, newVersionCommand,
	} {
		command.AddCommand(verb(global))
	}
	for _, verb := range peerVerbs {
		command.AddCommand(verb.command(global))
	}
	return command
}

// within connects to the cluster and does a verb's work there, for no longer than the timeout.
func (g *globalFlags) within(command *cobra.Command, timeout time.Duration, work func(context.Context, *connection) error) error {
	ctx, cancel := context.WithTimeout(command.Context(), timeout)
	defer cancel()
	c, err := g.connect()
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

// writeFlags are those of verbs that write, and can wait for what it brings.
type writeFlags struct {
	dryRunFlags
	waitFlags
}

func (f *writeFlags) bind(flags *pflag.FlagSet, timeout time.Duration, what string) {
	f.dryRunFlags.bind(flags)
	f.waitFlags.bind(flags, timeout, what)
}

// connection is access to one cluster.
type connection struct {
	name      string // the context, for messages
	namespace string // that is named, or that the context is about, as kubectl takes it
	config    *rest.Config
	client    client.WithWatch
	discovery discovery.DiscoveryInterface
	// exec runs a command in a pod, with an input, and returns its output.
	exec func(ctx context.Context, pod client.ObjectKey, command []string, input []byte) ([]byte, error)
}

func (g *globalFlags) connect() (*connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = g.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: g.context}
	overrides.Context.Namespace = g.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w (see --kubeconfig and --context)", err)
	}
	config.QPS = -1
	config.UserAgent = "kubectl-hanse/" + version.Version
	raw, rawErr := loader.RawConfig()
	namespace, _, namespaceErr := loader.Namespace()
	scheme, schemeErr := newScheme()
	if err := errors.Join(rawErr, namespaceErr, schemeErr); err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	d, discoveryErr := discovery.NewDiscoveryClientForConfig(config)
	if err := errors.Join(err, discoveryErr); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	found := &connection{name: orElse(g.context, raw.CurrentContext), namespace: namespace, config: config, client: c, discovery: d}
	found.exec = found.execIn
	return found, nil
}

// hanseIn returns the namespace that Hanse is installed in: the one that is named, or where it is found. Whoever may not look
// for it has to name it if it is an unusual one.
func (g *globalFlags) hanseIn(ctx context.Context, c client.Client) (string, error) {
	if g.system != "" {
		return g.system, nil
	}
	found, err := install.Cluster{Client: c}.Namespace(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return "", err
	}
	return orElse(found, v1alpha1.SystemNamespace), nil
}

// withHanse connects to the cluster, finds Hanse there, and does a verb's work, for no longer than the timeout.
func (g *globalFlags) withHanse(
	command *cobra.Command, timeout time.Duration, work func(ctx context.Context, c *connection, system string) error,
) error {
	return g.within(command, timeout, func(ctx context.Context, c *connection) error {
		system, err := g.hanseIn(ctx, c.client)
		if err != nil {
			return err
		}
		return work(ctx, c, system)
	})
}

// cluster is the connection as package install wants it.
func (c *connection) cluster(command *cobra.Command) install.Cluster {
	return install.Cluster{Client: c.client, Report: reporter(command)}
}

// reporter tells the user what is going on, beside what the verb prints.
func reporter(command *cobra.Command) func(string, ...any) {
	return func(format string, args ...any) { command.PrintErrf(format+"\n", args...) }
}

// say prints what the verb is for.
func say(command *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(command.OutOrStdout(), format, args...)
	return err
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		apiextensionsv1.AddToScheme(scheme), snapshotv1.AddToScheme(scheme))
}

// explain adds what to do to errors that a user can do something about.
func explain(err error, cluster string) error {
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return fmt.Errorf("Hanse is not installed in %s: run `kubectl hanse install --context %s`: %w", cluster, cluster, err) //nolint:staticcheck // Hanse is a name
	case apierrors.IsForbidden(err):
		return fmt.Errorf("your rights in %s do not suffice: %w", cluster, err)
	default:
		return err
	}
}

// clusterID waits until the manager says who the cluster is: it may have been installed just now.
func clusterID(ctx context.Context, c client.Client, namespace string) (string, error) {
	seen := &snapshot{}
	err := install.Until(ctx, "Hanse to say the cluster's id", func(ctx context.Context) (bool, error) {
		if found, err := read(ctx, c, "", namespace, &corev1.Namespace{}); err == nil && !found {
			return false, install.Final(fmt.Errorf("Hanse is not installed: there is no namespace %s: run `kubectl hanse install`", namespace)) //nolint:staticcheck // Hanse is a name
		}
		seen = take(ctx, c, scope{system: namespace}, time.Time{}, partInfo)
		return seen.clusterID != "", seen.err(partInfo)
	})
	return seen.clusterID, err
}

// read reads the object of that namespace and name, and reports whether there is one.
func read(ctx context.Context, c client.Client, namespace, name string, into client.Object) (bool, error) {
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		into.SetNamespace(namespace)
		into.SetName(name)
		return false, fmt.Errorf("read %s: %w", install.Describe(into), err)
	}
	return true, nil
}

// write makes the object be as mutate says, and makes it if it is not there. Its name and namespace must be set. Only what
// has changed is sent, so that fields that this client does not know stay.
func write(ctx context.Context, c client.Client, object client.Object, mutate func() error) error {
	namespace, name := object.GetNamespace(), object.GetName()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		// Nothing of an attempt that failed may stay.
		reflect.ValueOf(object).Elem().SetZero()
		object.SetNamespace(namespace)
		object.SetName(name)
		found, err := read(ctx, c, namespace, name, object)
		if err != nil {
			return err
		}
		before, _ := object.DeepCopyObject().(client.Object)
		if err := mutate(); err != nil {
			return err
		}
		switch {
		case !found:
			return c.Create(ctx, object)
		case equality.Semantic.DeepEqual(before, object):
			return nil
		default:
			return c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		}
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", install.Describe(object), err)
	}
	return nil
}

func blankPeer(name string) *v1alpha1.Peer {
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// readPeer reads a Peer that the user has named.
func readPeer(ctx context.Context, c client.Client, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	found, err := read(ctx, c, "", name, peer)
	if err == nil && !found {
		err = noPeer(name)
	}
	return peer, err
}

func noPeer(name string) error {
	return fmt.Errorf("there is no Peer %s here: `kubectl hanse status` shows those that there are: %w", name,
		apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("peers").GroupResource(), name))
}

// changePeer changes a Peer that is there.
func changePeer(ctx context.Context, c client.Client, name string, change func(*v1alpha1.Peer)) error {
	peer := blankPeer(name)
	return write(ctx, c, peer, func() error {
		if peer.ResourceVersion == "" {
			return noPeer(name)
		}
		change(peer)
		return nil
	})
}

func addRole(peer *v1alpha1.Peer, role v1alpha1.PeerRole) {
	if !peer.HasRole(role) {
		peer.Spec.Roles = append(peer.Spec.Roles, role)
	}
}

// currentCondition is the condition of the Peer as its spec is now, nil as long as nobody has looked at that.
func currentCondition(peer *v1alpha1.Peer, kind string) *metav1.Condition {
	found := meta.FindStatusCondition(peer.Status.Conditions, kind)
	if found == nil || found.ObservedGeneration < peer.Generation {
		return nil
	}
	return found
}

// tenantSecret reads a Secret of the peer's tenant namespace, nil if there is none.
func tenantSecret(ctx context.Context, c client.Client, peer, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if found, err := read(ctx, c, v1alpha1.TenantNamespace(peer), name, secret); !found {
		return nil, err
	}
	return secret, nil
}

func offloadingOf(namespace string) *v1alpha1.NamespaceOffloading {
	return &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName},
	}
}
