package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// root is the folder of the repository.
const root = "../.."

// A cluster is one of the testbed's, seen by its administrator.
type cluster struct {
	client.Client
	name       string
	kubeconfig string
	server     string // the URL of its API server
	audited    int64  // how long the audit log was when we connected: what is before that is of earlier runs
}

func connect(ctx context.Context, name string) (*cluster, error) {
	out, err := testbed(ctx, "kubeconfig", name)
	if err != nil {
		return nil, err
	}
	c := &cluster{name: name, kubeconfig: strings.TrimSpace(out)}
	info, err := os.Stat(c.auditLog())
	if err != nil {
		return nil, err
	}
	c.audited = info.Size()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.Timeout = 10 * time.Second // an API server without etcd keeps requests for long
	c.server = config.Host
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c.Client, err = client.New(config, client.Options{Scheme: scheme})
	return c, err
}

// machine returns this machine's address on the bridge that all clusters are on.
func (c *cluster) machine(ctx context.Context) (string, error) {
	server, err := url.Parse(c.server)
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

func stateFolder() string { return os.Getenv("HANSE_TESTBED_STATE") }

func (c *cluster) auditLog() string { return filepath.Join(stateFolder(), c.name, "logs", "audit.log") }

// history reads what happened to the cluster's pods in this run.
func (c *cluster) history() ([]version, error) {
	log, err := os.Open(c.auditLog())
	if err != nil {
		return nil, err
	}
	history, err := readHistory(io.NewSectionReader(log, c.audited, math.MaxInt64-c.audited))
	return history, errors.Join(err, log.Close())
}

func testbed(ctx context.Context, args ...string) (string, error) {
	return call(ctx, "testbed", append([]string{"--state", stateFolder()}, args...)...)
}

func (c *cluster) hanse(ctx context.Context, args ...string) (string, error) {
	return call(ctx, "kubectl-hanse", append(args, "--kubeconfig", c.kubeconfig)...)
}

func (c *cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	return call(ctx, "kubectl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

func call(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", program), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// again calls do until it succeeds: most of what fails here fails because something was broken on purpose.
func again(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(300 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}
