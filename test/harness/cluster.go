// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/multicluster"
)

// Root is the absolute path of the repository, the folder with go.mod at or above the working directory.
var Root = findRoot()

func findRoot() string {
	start, err := os.Getwd()
	if err != nil {
		return "." // programs of the folder bin are not found then, and the error says so
	}
	for folder := start; folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
	}
	return start
}

// A Cluster is one real Kubernetes cluster of the testbed, seen by its administrator.
type Cluster struct {
	client.Client
	Name       string
	Kubeconfig string // its path
	Config     *rest.Config
}

// Connect returns the cluster of that name, which the testbed has started. A request fails after the timeout; 0 is none.
func Connect(ctx context.Context, name string, timeout time.Duration) (*Cluster, error) {
	out, err := Testbed(ctx, "kubeconfig", name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, Kubeconfig: strings.TrimSpace(out)}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, err
	}
	c.Config.QPS = -1
	c.Config.Timeout = timeout
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	c.Client, err = client.New(c.Config, client.Options{Scheme: scheme})
	return c, err
}

// Scheme knows the kinds of Kubernetes, of Hanse, and of what Hanse keeps for others.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		multicluster.AddToScheme(scheme), snapshotv1.AddToScheme(scheme))
}

// StateFolder is where the testbed keeps the state of the clusters.
func StateFolder() string { return os.Getenv("HANSE_TESTBED_STATE") }

// Testbed runs bin/testbed on these clusters.
func Testbed(ctx context.Context, args ...string) (string, error) {
	return Run(ctx, "testbed", append([]string{"--state", StateFolder()}, args...)...)
}

// Hanse runs kubectl-hanse as the cluster's administrator.
func (c *Cluster) Hanse(ctx context.Context, args ...string) (string, error) {
	return Run(ctx, "kubectl-hanse", append(args, "--kubeconfig", c.Kubeconfig)...)
}

// Kubectl runs kubectl as the cluster's administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return Run(ctx, "kubectl", append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
}

// Run runs a program of the folder bin and returns what it prints. What it says of errors is part of the error.
func Run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(Root, "bin", program), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Machine returns this machine's address on the bridge that all clusters are on: pods reach it there.
func (c *Cluster) Machine(ctx context.Context) (string, error) {
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		return "", err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", server.Host) // sends nothing
	if err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return host, errors.Join(err, conn.Close())
}
