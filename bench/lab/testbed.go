// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Testbed starts and ends clusters, and knows where the programs are.
type Testbed struct {
	Bin   string   // the folder of programs
	State string   // the folder of the clusters' state
	Flags []string // more flags of the testbed's command up
}

// Up brings clusters up with flags of the testbed's command of that name.
func (t Testbed) Up(ctx context.Context, flags []string, names ...string) error {
	args := slices.Concat([]string{"--state", t.State, "up"}, names, flags, t.Flags)
	_, err := t.run(ctx, "testbed", args...)
	return err
}

// Down ends all clusters.
func (t Testbed) Down(ctx context.Context) error {
	_, err := t.run(ctx, "testbed", "--state", t.State, "down")
	return err
}

// Version returns the version of the programs that are measured.
func (t Testbed) Version(ctx context.Context) (string, error) {
	out, err := t.run(ctx, "hanse", "version")
	return strings.TrimSpace(out), err
}

func (t Testbed) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(t.Bin, program), args...) //nolint:gosec // our own programs
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// A Cluster is one cluster of the testbed, seen by its administrator.
type Cluster struct {
	client.WithWatch
	Name       string
	Kubeconfig string // the path of the administrator's
	Config     *rest.Config

	bed Testbed
}

// Cluster connects to a cluster that is up.
func (t Testbed) Cluster(ctx context.Context, name string) (*Cluster, error) {
	out, err := t.run(ctx, "testbed", "--state", t.State, "kubeconfig", name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, Kubeconfig: strings.TrimSpace(out), bed: t}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("read kubeconfig of cluster %s: %w", name, err)
	}
	c.Config.QPS = -1 // a load generator that limits itself measures itself
	c.Config.UserAgent = "bench"
	c.Config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c.WithWatch, err = client.NewWithWatch(c.Config, client.Options{Scheme: scheme})
	return c, err
}

// Clusters connects to the consumer and the provider of an experiment.
func (t Testbed) Clusters(ctx context.Context) (consumer, provider *Cluster, err error) {
	if consumer, err = t.Cluster(ctx, "consumer"); err != nil {
		return nil, nil, err
	}
	provider, err = t.Cluster(ctx, "provider")
	return consumer, provider, err
}

// Namespace makes a namespace.
func (c *Cluster) Namespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{}
	ns.Name = name
	if err := c.Create(ctx, ns); err != nil {
		return fmt.Errorf("create Namespace %s in %s: %w", name, c.Name, err)
	}
	return nil
}

// AuditLog is the path of the log of all requests to the cluster's API server.
func (c *Cluster) AuditLog() string { return filepath.Join(c.bed.State, c.Name, "logs", "audit.log") }

// Process returns a component of the cluster, by the name that the testbed has for it.
func (c *Cluster) Process(component string) (Process, error) {
	data, err := os.ReadFile(filepath.Join(c.bed.State, c.Name, "pids", component+".json")) //nolint:gosec // the testbed's own file
	if err != nil {
		return Process{}, fmt.Errorf("find %s of %s: %w", component, c.Name, err)
	}
	var record struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return Process{}, fmt.Errorf("find %s of %s: %w", component, c.Name, err)
	}
	return Process{Name: c.Name + " " + component, PID: record.PID}, nil
}

// Processes returns components of the cluster.
func (c *Cluster) Processes(components ...string) ([]Process, error) {
	var found []Process
	for _, component := range components {
		process, err := c.Process(component)
		if err != nil {
			return nil, err
		}
		found = append(found, process)
	}
	return found, nil
}
