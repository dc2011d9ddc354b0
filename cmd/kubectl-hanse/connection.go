package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/install"
	"github.com/hanse-dev/hanse/internal/version"
)

// target is where a cluster's API server is found.
type target struct {
	kubeconfig string
	context    string
}

// connection is access to one cluster.
type connection struct {
	name      string // the context, for messages
	namespace string // that the context is about, as kubectl takes it
	config    *rest.Config
	client    client.WithWatch
	// exec runs askCommand in a pod, with an input, and returns its output.
	exec func(ctx context.Context, namespace, pod string, input []byte) ([]byte, error)
}

func (t target) connect() (*connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: t.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w (see --kubeconfig and --context)", err)
	}
	config.QPS = -1
	config.UserAgent = "kubectl-hanse/" + version.Version
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	found := &connection{name: t.nameOf(loader), namespace: namespace, config: config, client: c}
	found.exec = found.execIn
	return found, nil
}

func (t target) nameOf(loader clientcmd.ClientConfig) string {
	if t.context != "" {
		return t.context
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return ""
	}
	return raw.CurrentContext
}

func (c *connection) discovery() (discovery.DiscoveryInterface, error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.config.Host, err)
	}
	return d, nil
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
		apiextensionsv1.AddToScheme(scheme))
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
	found, err := read(ctx, c, "", namespace, &corev1.Namespace{})
	if err != nil {
		return "", err
	}
	if !found {
		return "", fmt.Errorf("Hanse is not installed: there is no namespace %s: run `kubectl hanse install`", namespace) //nolint:staticcheck // Hanse is a name
	}
	seen := &snapshot{}
	err = install.Until(ctx, "Hanse to say the cluster's id", func(ctx context.Context) (bool, error) {
		seen = take(ctx, c, scope{system: namespace}, time.Time{}, partInfo)
		return seen.clusterID != "", seen.err(partInfo)
	})
	return seen.clusterID, err
}
