package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// root is the folder of the repository: the stories run in test/e2e.
const root = "../.."

// patience is how long a story waits for an effect before it fails. It is no measure of speed.
const patience = 3 * time.Minute

// A cluster is one real Kubernetes cluster of the testbed, seen by its administrator.
type cluster struct {
	client.Client
	name       string
	kubeconfig string
	config     *rest.Config
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

func connect(ctx context.Context, name string) (*cluster, error) {
	out, err := testbed(ctx, "kubeconfig", name)
	if err != nil {
		return nil, err
	}
	c := &cluster{name: name, kubeconfig: strings.TrimSpace(out)}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return nil, err
	}
	c.config.QPS = -1
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c.Client, err = client.New(c.config, client.Options{Scheme: scheme})
	return c, err
}

// testbed runs bin/testbed on the stories' own testbed.
func testbed(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "testbed", append([]string{"--state", os.Getenv("HANSE_TESTBED_STATE")}, args...)...)
}

// hanse runs kubectl-hanse as the cluster's administrator.
func (c *cluster) hanse(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "kubectl-hanse", append(args, "--kubeconfig", c.kubeconfig)...)
}

// kubectl runs kubectl as the cluster's administrator.
func (c *cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "kubectl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", program), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func trimmed(data []byte) string { return strings.TrimSpace(string(data)) }

// namespace makes a namespace for the story and deletes it at the story's end.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.GenerateName = "story-"
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.describe(ns.Name)
		}
		if err := c.Delete(context.Background(), ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// offloaded makes a namespace whose pods are offloaded by the strategy, and waits until they can be.
func (c *cluster) offloaded(t *testing.T, strategy v1alpha1.OffloadingStrategy) string {
	t.Helper()
	return c.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{Strategy: strategy})
}

// offloadedBy is offloaded with more to say about it.
func (c *cluster) offloadedBy(t *testing.T, spec v1alpha1.NamespaceOffloadingSpec) string {
	t.Helper()
	ns := c.namespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: spec}
	offloading.Name, offloading.Namespace = v1alpha1.NamespaceOffloadingName, ns
	c.create(t, offloading)
	c.awaitPolicy(t, ns, spec.Strategy)
	return ns
}

// describe prints what a person would look at when a story has failed.
func (c *cluster) describe(ns string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"get", "peers,nodes", "-o", "wide"},
		{"get", "pods,namespaceoffloadings", "-n", ns, "-o", "yaml", "--show-managed-fields=false"},
		{"get", "events", "-n", ns},
		{"get", "pods,shadowpods,namespacemappings,advertisements", "-A", "-o", "wide"},
		{"logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=hanse", "--tail=40", "--prefix"},
	} {
		out, err := c.kubectl(ctx, args...)
		fmt.Printf("--- %s: kubectl %s (%v)\n%s\n", c.name, strings.Join(args, " "), err, tail(out, 12000))
	}
}

func tail(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return "...\n" + text[len(text)-limit:]
}
