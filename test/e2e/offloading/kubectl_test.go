// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// What kubectl does with a pod on any node, it does with one that runs elsewhere.
func TestKubectlVerbs(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "tool", "echo one; echo two; "+strings.TrimPrefix(framework.RunForever, "trap 'exit 0' TERM; echo started; ")))
	lubeck.MustCreate(t, &corev1.Pod{ObjectMeta: framework.NewShellPod(ns, "server", "").ObjectMeta, Spec: framework.NewEchoPodSpec()})
	lubeck.AwaitReadyPods(t, ns, "tool", 1)
	lubeck.AwaitReadyPods(t, ns, "server", 1)

	for name, verb := range map[string]func(t *testing.T, ns string){
		"cp":                           copyThereAndBack,
		"logs with times and since":    readLogs,
		"exec over WebSocket and SPDY": execBothWays,
		"attach":                       attachToParrot,
		"port-forward":                 forwardPort,
		"label and annotate":           labelAndAnnotate,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verb(t, ns)
		})
	}
}

func copyThereAndBack(t *testing.T, ns string) {
	here := filepath.Join(t.TempDir(), "cargo")
	cargo := strings.Repeat("cargo ", 100_000)
	if err := os.WriteFile(here, []byte(cargo), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, way := range [][2]string{{here, ns + "/tool:/tmp/cargo"}, {ns + "/tool:/tmp/cargo", here + ".back"}} {
		if _, err := lubeck.Kubectl(t.Context(), "cp", way[0], way[1]); err != nil {
			t.Fatal(err)
		}
	}
	if back, err := os.ReadFile(here + ".back"); err != nil || string(back) != cargo {
		t.Errorf("%d bytes came back, %v", len(back), err)
	}
}

func readLogs(t *testing.T, ns string) {
	out, err := lubeck.Kubectl(t.Context(), "logs", "-n", ns, "tool", "--timestamps", "--since=1h")
	if err != nil || !regexp.MustCompile(`^20\d\d-\S+Z one\n20\d\d-\S+Z two\n`).MatchString(out) {
		t.Errorf("logs: %q, %v", out, err)
	}
	if out, err = lubeck.Kubectl(t.Context(), "logs", "-n", ns, "tool", "--limit-bytes=3"); err != nil || out != "one" {
		t.Errorf("three bytes of logs: %q, %v", out, err)
	}
}

func execBothWays(t *testing.T, ns string) {
	for _, webSockets := range []string{"true", "false"} {
		cmd := kubectlCommand(t.Context(), "exec", "-i", "-n", ns, "tool", "--", "/bin/sh", "-c", "cat; echo err >&2")
		cmd.Env = append(os.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+webSockets)
		cmd.Stdin = strings.NewReader("through")
		if out, err := cmd.Output(); err != nil || string(out) != "through" {
			t.Errorf("with WebSockets %s: %q, %v", webSockets, out, err)
		}
	}
}

func attachToParrot(t *testing.T, ns string) {
	pod := framework.NewShellPod(ns, "parrot", "while read line; do echo it says $line; done; sleep 1000")
	pod.Spec.Containers[0].Stdin = true
	lubeck.MustCreate(t, pod)
	lubeck.AwaitReadyPods(t, ns, "parrot", 1)
	cmd := kubectlCommand(t.Context(), "attach", "-i", "-n", ns, "parrot")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stdin, "ahoy\n"); err != nil {
		t.Error(err)
	}
	framework.Eventually(t, "the container has read it", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "logs", "-n", ns, "parrot")
		if err == nil && out != "it says ahoy\n" {
			err = fmt.Errorf("its log is %q", out)
		}
		return err
	})
	_ = stdin.Close()
	_ = cmd.Process.Kill() // it waits for the container's end
	_ = cmd.Wait()
}

func forwardPort(t *testing.T, ns string) {
	forward(t, ns, "server", 8080, func(url string) {
		framework.Eventually(t, "the server answers", func(ctx context.Context) error { return answers(ctx, url) })
	})
}

func labelAndAnnotate(t *testing.T, ns string) {
	for _, args := range [][]string{{"label", "tier=gold"}, {"annotate", "note=here"}} {
		if _, err := lubeck.Kubectl(t.Context(), args[0], "pod", "-n", ns, "tool", args[1]); err != nil {
			t.Fatal(err)
		}
	}
	framework.Eventually(t, "the remote pod has them too", func(ctx context.Context) error {
		home, err := lubeck.GetPod(ctx, ns, "tool")
		if err != nil {
			return err
		}
		remote, err := hamburg.GetRemotePod(ctx, home)
		if err == nil && (remote.Labels["tier"] != "gold" || remote.Annotations["note"] != "here") {
			err = fmt.Errorf("%v %v", remote.Labels, remote.Annotations)
		}
		return err
	})
}

// forward runs kubectl port-forward while use is called with the URL at which the port is.
func forward(t *testing.T, ns, pod string, port int, use func(url string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), framework.WaitTimeout)
	defer cancel()
	cmd := kubectlCommand(ctx, "port-forward", "-n", ns, "pod/"+pod, fmt.Sprintf(":%d", port))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	first := make([]byte, 256)
	n, err := out.Read(first)
	match := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindSubmatch(first[:n])
	if match == nil {
		t.Fatalf("port-forward says %q, %v", first[:n], err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	use("http://127.0.0.1:" + string(match[1]))
}

func answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// What offloaded pods use is known at home, as metrics-server finds it at every node.
func TestTop(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	busy := framework.NewShellPod(ns, "measured", "while true; do :; done")
	busy.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")} // the machine is for all stories
	lubeck.MustCreate(t, busy)
	lubeck.AwaitReadyPods(t, ns, "measured", 1)
	for _, args := range [][]string{{"top", "pod", "-n", ns, "measured", "--containers"}, {"top", "node", "hanse-hamburg"}} {
		framework.Eventually(t, "kubectl "+strings.Join(args, " "), func(ctx context.Context) error {
			out, err := lubeck.Kubectl(ctx, args...)
			if err == nil && !regexp.MustCompile(`\s[1-9]\d*m\s`).MatchString(out) {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
	}
}

// A resize at home is one of the running container at the peer.
func TestResizeInPlace(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "growing", framework.RunForever))
	home := lubeck.AwaitReadyPods(t, ns, "growing", 1)[0]
	before := hamburg.MustGetRemotePod(t, &home)
	patch := `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"30m"}}}]}}`
	if _, err := lubeck.Kubectl(ctx, "patch", "pod", "-n", ns, "growing", "--subresource=resize", "-p", patch); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "both sides say that it has what it asked for", func(ctx context.Context) error {
		remote, err := hamburg.GetRemotePod(ctx, &home)
		if err != nil {
			return err
		}
		now, err := lubeck.GetPod(ctx, ns, "growing")
		if err != nil {
			return err
		}
		for where, pod := range map[string]*corev1.Pod{"home": now, "hamburg": remote} {
			if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].Resources == nil ||
				pod.Status.ContainerStatuses[0].Resources.Requests.Cpu().String() != "30m" {
				return fmt.Errorf("%s: %+v", where, pod.Status.ContainerStatuses)
			}
		}
		return nil
	})
	framework.ExpectUntouched(t, lubeck, &home, hamburg, before)
}

// kubectl debug works where the provider lets it, and says so where not.
func TestDebugWhereAllowed(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "patient", framework.RunForever))
	home := lubeck.AwaitReadyPods(t, ns, "patient", 1)[0]
	debug := func(name string) {
		_, err := lubeck.Kubectl(ctx, "debug", "-n", ns, "patient", "--image="+framework.BusyboxImage, "--image-pull-policy=IfNotPresent", "--container="+name,
			"--target=main", "--", "/bin/sh", "-c", "echo looking; sleep 1000")
		if err != nil {
			t.Fatal(err)
		}
	}
	debug("refused")
	framework.Eventually(t, "an event says that the provider does not allow it", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "get", "events", "-n", ns, "--field-selector", "involvedObject.uid="+string(home.UID), "-o", "jsonpath={.items[*].reason}")
		if err == nil && !strings.Contains(out, v1alpha1.ReasonDebugForbidden) {
			err = fmt.Errorf("events: %s", out)
		}
		return err
	})
	changePeer(t, hamburg, "lubeck", func(spec *v1alpha1.PeerSpec) { spec.AllowDebug = true })
	debug("allowed")
	framework.Eventually(t, "the debugging container's log comes home", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "logs", "-n", ns, "patient", "-c", "allowed")
		if err == nil && out != "looking\n" {
			err = fmt.Errorf("%q", out)
		}
		return err
	})
}

// changePeer changes a Peer until the story's end.
func changePeer(t *testing.T, c *framework.Cluster, name string, change func(*v1alpha1.PeerSpec)) {
	t.Helper()
	before, err := c.GetPeer(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	set := func(change func(*v1alpha1.PeerSpec)) {
		t.Helper()
		framework.EventuallyInCleanup(t, "Peer "+name+" is changed", func(ctx context.Context) error {
			now, err := c.GetPeer(ctx, name)
			if err != nil {
				return err
			}
			changed := now.DeepCopy()
			change(&changed.Spec)
			return c.Patch(ctx, changed, client.MergeFrom(now))
		})
	}
	set(change)
	t.Cleanup(func() { set(func(spec *v1alpha1.PeerSpec) { before.Spec.DeepCopyInto(spec) }) })
}

func TestLogsAndExec(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "talker",
		"trap 'exit 0' TERM; n=0; while true; do n=$((n+1)); echo line $n of $HOSTNAME; sleep 1 & wait $!; done"))
	home := lubeck.AwaitReadyPods(t, ns, "talker", 1)[0]
	framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))

	t.Run("logs so far", func(t *testing.T) {
		out, err := lubeck.Kubectl(t.Context(), "logs", "-n", ns, "talker")
		if err != nil || !strings.HasPrefix(out, "line 1 of talker\n") {
			t.Errorf("logs: %q, %v", out, err)
		}
	})
	t.Run("logs of the last line", func(t *testing.T) {
		out, err := lubeck.Kubectl(t.Context(), "logs", "-n", ns, "talker", "--tail=1")
		if err != nil || strings.Count(out, "\n") != 1 {
			t.Errorf("logs: %q, %v", out, err)
		}
	})
	t.Run("logs that go on", func(t *testing.T) { followLogs(t, ns) })
	t.Run("exec", func(t *testing.T) {
		out, err := lubeck.Kubectl(t.Context(), "exec", "-n", ns, "talker", "--", "/bin/sh", "-c", "hostname; echo $((6*7))")
		if err != nil || out != "talker\n42\n" {
			t.Errorf("exec: %q, %v", out, err)
		}
	})
	t.Run("no address of the provider's API server", func(t *testing.T) { knowsNoAPIServer(t, &home) })
	t.Run("exec with an exit code", func(t *testing.T) {
		_, err := lubeck.Kubectl(t.Context(), "exec", "-n", ns, "talker", "--", "/bin/sh", "-c", "exit 7")
		if err == nil || !strings.Contains(err.Error(), "exit status 7") {
			t.Errorf("exec: %v", err)
		}
	})
	t.Run("exec with standard input", func(t *testing.T) {
		cmd := kubectlCommand(t.Context(), "exec", "-i", "-n", ns, "talker", "--", "/bin/sh", "-c", "wc -c")
		cmd.Stdin = strings.NewReader(strings.Repeat("x", 100_000))
		out, err := cmd.Output()
		if err != nil || framework.Trim(out) != "100000" {
			t.Errorf("exec: %q, %v", out, err)
		}
	})
	t.Run("exec with a terminal", func(t *testing.T) { terminal(t, ns) })
	t.Run("logs of a container that is not there", func(t *testing.T) {
		_, err := lubeck.Kubectl(t.Context(), "logs", "-n", ns, "talker", "-c", "nobody")
		if err == nil {
			t.Error("logs of an unknown container: no error")
		}
	})
}

// knowsNoAPIServer checks that the pod has neither an address of an API server nor a token, and says of the token why.
func knowsNoAPIServer(t *testing.T, home *corev1.Pod) {
	t.Helper()
	const looks = `echo "<$KUBERNETES_SERVICE_HOST$KUBERNETES_PORT>"; ls /var/run/secrets 2>&1; true`
	out, err := lubeck.Kubectl(t.Context(), "exec", "-n", home.Namespace, home.Name, "--", "/bin/sh", "-c", looks)
	if err != nil || !strings.HasPrefix(out, "<>\n") || strings.Contains(out, "kubernetes.io") {
		t.Errorf("the pod has %q (%v)", out, err)
	}
	if told := framework.PodConditionStatus(home, v1alpha1.PodToken); told != corev1.ConditionFalse {
		t.Errorf("that its token stayed at home it says: %s", told)
	}
}

func kubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(framework.Root, "bin", "kubectl"), append([]string{"--kubeconfig", lubeck.Kubeconfig}, args...)...)
}

// followLogs reads lines that are written after kubectl began to follow.
func followLogs(t *testing.T, ns string) {
	ctx, cancel := context.WithTimeout(t.Context(), framework.WaitTimeout)
	defer cancel()
	cmd := kubectlCommand(ctx, "logs", "-f", "--tail=1", "-n", ns, "talker")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	seen := map[string]bool{}
	for len(seen) < 4 && lines.Scan() {
		seen[lines.Text()] = true
	}
	cancel()
	_ = cmd.Wait() // ended by us
	if len(seen) < 4 {
		t.Errorf("only %d lines came: %v", len(seen), seen)
	}
}

// terminal types into a shell in the remote container as a person does.
func terminal(t *testing.T, ns string) {
	ctx, cancel := context.WithTimeout(t.Context(), framework.WaitTimeout)
	defer cancel()
	cmd := kubectlCommand(ctx, "exec", "-it", "-n", ns, "talker", "--", "/bin/sh")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tty.Close() }()
	// kubectl sends the size of the screen in a message of its own, which may arrive after the shell has started. Until then stty fails.
	const typed = "test -t 0 && echo terminal-$((6*7)); until stty size; do sleep 1; done; exit\n"
	if _, err := io.WriteString(tty, typed); err != nil {
		t.Fatal(err)
	}
	screen, _ := io.ReadAll(tty) // ends with EIO when the shell has ended
	if err := waitFor(cmd, time.Minute); err != nil {
		t.Errorf("kubectl exec -it: %v", err)
	}
	if !strings.Contains(string(screen), "terminal-42") || !strings.Contains(string(screen), "33 99") {
		t.Errorf("the screen shows %q", screen)
	}
}

func waitFor(cmd *exec.Cmd, limit time.Duration) error {
	stop := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	return cmd.Wait()
}
