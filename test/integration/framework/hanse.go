// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

const (
	image        = "hanse.dev/hanse:integration" // which no node pulls: KWOK runs nothing
	tokenSeconds = 12 * 60 * 60                  // longer than any run
	graceful     = 15 * time.Second              // for a server to end
)

// commonValues are values of the chart that suit all tests: messages follow changes at once.
func commonValues(c *Cluster) []string {
	return []string{
		"advertising.imagePatterns={hanse.dev/test/*}", "advertising.minInterval=500ms", "advertising.settleInterval=1s",
		"probePeriod=2s", "manager.apiServers[0]=" + c.Config.Host,
	}
}

// FrequentMessages are values of the chart for tests of offers, which cannot wait for ten minutes. Ten hellos may be late before an offer
// expires, because a busy machine delays some.
var FrequentMessages = []string{
	"advertising.helloInterval=3s", "advertising.helloTimeout=30s", "advertising.fullInterval=12s", "bandwidthInterval=1m",
	"accountingPeriod=3s",
}

// Install installs Hanse with the values of the package and these, or upgrades it, and starts its servers again with the
// arguments that their Deployments then have.
func (c *Cluster) Install(ctx context.Context, values ...string) error {
	args := []string{"install", "--cluster-id", c.Name, "--image", image, "--reset-values", "--wait=false"}
	for _, value := range slices.Concat(commonValues(c), c.values, values) {
		args = append(args, "--set", value)
	}
	if _, err := c.Hanse(ctx, args...); err != nil {
		return err
	}
	c.StopHanse()
	return c.StartHanse(ctx)
}

// components are Hanse's servers that run in every package.
var components = []string{"manager", "kubelet"}

// StartHanse starts the servers that do not run, and waits until their caches are filled.
func (c *Cluster) StartHanse(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, component := range components {
		if c.server(component) == nil {
			group.Go(func() error { return c.StartServer(ctx, component) })
		}
	}
	return group.Wait()
}

// StopHanse stops all servers.
func (c *Cluster) StopHanse() {
	for _, component := range components {
		c.StopServer(component)
	}
}

// StartServer starts a server, such as manager, as its Deployment says, but as a process of this machine.
func (c *Cluster) StartServer(ctx context.Context, component string) error {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "hanse-" + component}
	if err := c.Get(ctx, key, deployment); err != nil {
		return err
	}
	kubeconfig, err := c.serverKubeconfig(ctx, key.Name)
	if err != nil {
		return err
	}
	health, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	metrics, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	args := slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "$(POD_IP)", "127.0.0.1")
	}
	args = append(args, "--log-format=text", "--metrics-bind-address="+metrics, "--health-probe-bind-address="+health)
	started, err := startProcess(c.logFile(component), []string{
		"KUBECONFIG=" + kubeconfig, "HOME=" + harness.StateFolder(), "POD_NAME=" + key.Name, "POD_IP=127.0.0.1", "POD_IPS=127.0.0.1",
	}, filepath.Join(harness.Root, "bin", "hanse"), args...)
	if err != nil {
		return err
	}
	started.metrics = metrics
	c.setServer(component, started)
	return c.awaitReady(ctx, component, started, health)
}

// awaitReady waits until a server says that its caches are filled.
func (c *Cluster) awaitReady(ctx context.Context, component string, started *process, health string) error {
	err := harness.Until(ctx, waitTimeout, func(ctx context.Context) error {
		if started.hasEnded() {
			return fmt.Errorf("it has ended: %s", started.cmd.ProcessState)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }() // nothing is read
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", response.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for hanse %s of %s: %w\n%s", component, c.Name, err, tailOf(c.logFile(component)))
	}
	return nil
}

// Metrics returns the metrics of a server as it shows them.
func (c *Cluster) Metrics(ctx context.Context, component string) (string, error) {
	running := c.server(component)
	if running == nil {
		return "", fmt.Errorf("hanse %s of %s does not run", component, c.Name)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+running.metrics+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// Metric returns the value of a series of the manager's metrics, such as hanse_statements_refused_total{peer="a",reason="b"}, or 0 if
// there is none.
func (c *Cluster) Metric(t T, series string) float64 {
	t.Helper()
	text, err := c.Metrics(t.Context(), "manager")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), series+" "); found {
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	return 0
}

// StopServer asks a server to end, and waits until it has.
func (c *Cluster) StopServer(component string) { c.endServer(component, syscall.SIGTERM) }

// KillServer ends a server as a crash does.
func (c *Cluster) KillServer(component string) { c.endServer(component, syscall.SIGKILL) }

// PauseServer stops a server until the end of the test.
func (c *Cluster) PauseServer(t T, component string) {
	t.Helper()
	c.StopServer(component)
	t.Cleanup(func() {
		if c.server(component) != nil {
			return // the test has started it
		}
		if err := c.StartServer(context.Background(), component); err != nil {
			t.Error(err)
		}
	})
}

func (c *Cluster) endServer(component string, signal syscall.Signal) {
	if running := c.server(component); running != nil {
		running.end(signal)
		c.setServer(component, nil)
	}
}

func (c *Cluster) logFile(component string) string {
	return filepath.Join(harness.StateFolder(), c.Name, "logs", "hanse-"+component+".log")
}

// serverKubeconfig writes a kubeconfig with the rights of a ServiceAccount of Hanse's namespace, and returns its path.
func (c *Cluster) serverKubeconfig(ctx context.Context, account string) (string, error) {
	token, err := c.Token(ctx, v1alpha1.SystemNamespace, account)
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos[c.Name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: c.Name}
	config.CurrentContext = c.Name
	path := filepath.Join(harness.StateFolder(), c.Name, account+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// Token returns a token of a ServiceAccount.
func (c *Cluster) Token(ctx context.Context, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = namespace, name
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("create token of ServiceAccount %s/%s in %s: %w", namespace, name, c.Name, err)
	}
	return request.Status.Token, nil
}

// freeAddress returns an address of this machine that nobody listens at.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// A process is a server of Hanse that runs on this machine.
type process struct {
	cmd     *exec.Cmd
	metrics string        // address of its metrics
	ended   chan struct{} // closed when it has ended
}

// startProcess starts a program that ends with this process at the latest. Its output goes to the log.
func startProcess(log string, environment []string, program string, args ...string) (*process, error) {
	logs, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = logs.Close() }()   // the process has its own handle
	cmd := exec.Command(program, args...) //nolint:noctx // it ends when the test or its parent ends it
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = environment, logs, logs, endWithParent()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its state
		close(p.ended)
	}()
	return p, nil
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// end sends a signal and waits until the process has ended.
func (p *process) end(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(graceful):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// tailOf returns the end of a file.
func tailOf(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return errors.Join(errors.New("no log"), err).Error()
	}
	return tail(string(text), 4096)
}

// ServerPIDs returns the process of each of Hanse's servers, 0 for one that has ended by itself.
func (c *Cluster) ServerPIDs() map[string]int {
	pids := map[string]int{}
	for _, component := range components {
		if running := c.server(component); running != nil {
			pids[component] = 0
			if !running.hasEnded() {
				pids[component] = running.cmd.Process.Pid
			}
		}
	}
	return pids
}
