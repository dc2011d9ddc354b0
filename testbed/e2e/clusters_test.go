// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// workload is a server with a Service, and a shell.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo}
spec:
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      containers:
      - name: echo
        image: hanse.dev/test/echo:v1
        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: shell
    image: hanse.dev/test/busybox:v1
    command: [sleep, infinity]
    volumeMounts: [{name: memory, mountPath: /memory}]
  volumes: [{name: memory, emptyDir: {medium: Memory}}]
`

// TestE2EStories tells what a user does with two clusters, from up to down.
func TestE2EStories(t *testing.T) {
	b := newBed(t)
	before := look(t)
	b.run("up", "lubeck", "hamburg")
	for _, story := range []struct {
		name string
		tell func(*testing.T, *bed)
	}{
		{"UpIsIdempotent", upIsIdempotent},
		{"PodsRunInBoth", podsRunInBoth},
		{"ControlPlaneReachesPods", controlPlaneReachesPods},
		{"IngressAnswersTheMachine", ingressAnswersTheMachine},
		{"SnapshotsKeepAMoment", snapshotsKeepAMoment},
		{"CutAndHeal", cutAndHeal},
		{"ComponentsStopAndStart", componentsStopAndStart},
		{"ContainersOutliveTheirKeepers", containersOutliveTheirKeepers},
		{"OptionsChange", optionsChange},
		{"FailureNamesTheComponent", failureNamesTheComponent},
		{"LoadedImageRuns", loadedImageRuns},
		{"OneClusterGoes", oneClusterGoes},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, &bed{t: t, bin: b.bin, state: b.state}) }) {
			t.FailNow()
		}
	}
	b.downLeavesNothing(before)
}

var components = []string{"etcd", "apiserver", "controller-manager", "scheduler", "coredns", "containerd/1", "kubelet/1", "proxy/1"}

func (b *bed) allPIDs(cluster string) map[string]int {
	found := map[string]int{} // name of a component → its process
	for _, component := range components {
		found[component] = b.pid(cluster, component)
		if found[component] == 0 {
			b.t.Errorf("%s of %s does not run", component, cluster)
		}
	}
	return found
}

func upIsIdempotent(t *testing.T, b *bed) {
	before := []map[string]int{b.allPIDs("lubeck"), b.allPIDs("hamburg")}
	said := b.run("up", "lubeck", "hamburg")
	if said != "" {
		t.Errorf("nothing was to be done, but it said:\n%s", said)
	}
	after := []map[string]int{b.allPIDs("lubeck"), b.allPIDs("hamburg")}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("processes were %v and are %v", before, after)
	}
}

func podsRunInBoth(t *testing.T, b *bed) {
	for _, cluster := range []string{"lubeck", "hamburg"} {
		b.apply(cluster, workload)
	}
	for _, cluster := range []string{"lubeck", "hamburg"} {
		b.kubectl(cluster, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
		logs := b.kubectl(cluster, "logs", "deployment/echo")
		if !strings.Contains(logs, "echo listens on :8080") {
			t.Errorf("logs in %s: %q", cluster, logs)
		}
		b.eventually("the Service in "+cluster, func() error {
			text, err := b.shell(cluster, "shell", "timeout 3 wget -q -O - http://echo.default.svc.cluster.local/hello")
			if err != nil {
				return fmt.Errorf("%w: %s", err, text)
			}
			var answer struct {
				Node    string `json:"node"`
				Request struct {
					Path string `json:"path"`
				} `json:"request"`
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				return err
			}
			if answer.Node != cluster+"-worker-1" || answer.Request.Path != "/hello" {
				return fmt.Errorf("answer %s", text)
			}
			return nil
		})
		address := b.kubectl(cluster, "get", "pod", "shell", "-o", "jsonpath={.status.podIP}")
		if !strings.HasPrefix(address, "10.244.") {
			t.Errorf("a pod of %s has the address %s: clusters are to share their pod CIDR", cluster, address)
		}
	}
}

// controlPlaneReachesPods goes through the API server to a pod and to a Service, as aggregated APIs and webhooks do.
func controlPlaneReachesPods(t *testing.T, b *bed) {
	for _, path := range []string{"services/echo:80/proxy/via-service", "pods/%s:8080/proxy/via-pod"} {
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, b.kubectl("lubeck", "get", "pod", "-l", "app=echo", "-o", "jsonpath={.items[0].metadata.name}"))
		}
		answer := b.kubectl("lubeck", "get", "--raw", "/api/v1/namespaces/default/"+path)
		if !strings.Contains(answer, `"node": "lubeck-worker-1"`) {
			t.Errorf("answer by way of %s: %s", path, answer)
		}
	}
}

// reaches tells whether a pod of one cluster gets an answer from another's API server.
func (b *bed) reaches(from, to string) error {
	server := b.kubectl(to, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
	host, port, _ := strings.Cut(strings.TrimPrefix(server, "https://"), ":")
	text, err := b.shell(from, "shell", fmt.Sprintf("timeout 3 nc %s %s </dev/null", host, port))
	if err != nil {
		return fmt.Errorf("%s does not reach %s: %w %s", from, to, err, text)
	}
	return nil
}

func (b *bed) unreachable(from, to string) func() error {
	return func() error {
		if b.reaches(from, to) == nil {
			return fmt.Errorf("%s still reaches %s", from, to)
		}
		return nil
	}
}

func cutAndHeal(t *testing.T, b *bed) {
	both := func() error { return errors.Join(b.reaches("lubeck", "hamburg"), b.reaches("hamburg", "lubeck")) }
	if err := both(); err != nil {
		t.Fatal(err)
	}
	b.run("cut", "lubeck", "hamburg")
	b.eventually("the cut from lubeck", b.unreachable("lubeck", "hamburg"))
	b.eventually("the cut from hamburg", b.unreachable("hamburg", "lubeck"))
	b.run("up", "lubeck") // does not heal
	if err := b.unreachable("lubeck", "hamburg")(); err != nil {
		t.Error(err)
	}
	b.run("heal", "lubeck", "hamburg")
	b.eventually("the cut to end", both)
	b.run("cut", "lubeck", "hamburg", "--one-way")
	b.eventually("the cut one way", b.unreachable("lubeck", "hamburg"))
	if err := b.reaches("hamburg", "lubeck"); err != nil {
		t.Errorf("the cut was for the other way: %v", err)
	}
	b.run("heal", "lubeck", "hamburg")
	b.eventually("the cut to end", both)
	if text, err := b.try("cut", "lubeck", "bremen"); err == nil || !strings.Contains(text, "no such cluster") {
		t.Errorf("cut off a cluster that does not exist: %v %s", err, text)
	}
}

func componentsStopAndStart(t *testing.T, b *bed) {
	for _, verb := range []string{"stop", "kill"} {
		for _, component := range []string{"scheduler", "apiserver", "etcd"} {
			b.run(verb, "lubeck", component)
			if pid := b.pid("lubeck", component); pid != 0 {
				t.Errorf("%s after %s: it runs as %d", component, verb, pid)
			}
			b.run("start", "lubeck", component)
			if b.pid("lubeck", component) == 0 {
				t.Errorf("%s after start: it does not run", component)
			}
		}
		b.eventually("the API server", func() error {
			_, err := b.kubectlTry("lubeck", "get", "--raw", "/readyz")
			return err
		})
	}
	b.run("kill", "lubeck", "controller-manager")
	b.run("up", "lubeck")
	if b.pid("lubeck", "controller-manager") == 0 {
		t.Error("up did not start what was killed")
	}
	if text, err := b.try("stop", "lubeck", "kubelet/7"); err == nil || !strings.Contains(text, "kubelet/1") {
		t.Errorf("stop of a component that does not exist: %v %s", err, text)
	}
}

func containersOutliveTheirKeepers(t *testing.T, b *bed) {
	id := func() string {
		return b.kubectl("lubeck", "get", "pod", "shell", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	}
	before := id()
	for _, component := range []string{"kubelet/1", "containerd/1", "proxy/1"} {
		b.run("kill", "lubeck", component)
	}
	b.run("up", "lubeck")
	b.eventually("exec into the same container", func() error {
		text, err := b.shell("lubeck", "shell", "echo alive")
		if err != nil || strings.TrimSpace(text) != "alive" {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	if after := id(); after != before {
		t.Errorf("the container was %s and is %s", before, after)
	}
}

func optionsChange(t *testing.T, b *bed) {
	before := b.allPIDs("hamburg")
	b.run("up", "hamburg", "--workers", "2", "--audit", "--simulated-nodes", "2", "--extra-scheduler", "slow:500ms")
	after := b.allPIDs("hamburg")
	for _, component := range components {
		if changed := before[component] != after[component]; changed != (component == "apiserver") {
			t.Errorf("%s was restarted: %v, though only the API server's options changed", component, changed)
		}
	}
	b.apply("hamburg", `
apiVersion: v1
kind: Pod
metadata: {name: elsewhere}
spec:
  schedulerName: slow
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: hamburg-worker-2}
  containers: [{name: shell, image: hanse.dev/test/busybox:v1, command: [sleep, infinity]}]
---
apiVersion: v1
kind: Pod
metadata: {name: simulated}
spec:
  nodeSelector: {type: kwok}
  containers: [{name: any, image: example.com/any:v1}]
`)
	b.kubectl("hamburg", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	echo := b.kubectl("hamburg", "get", "pod", "-l", "app=echo", "-o", "jsonpath={.items[0].status.podIP}")
	if text, err := b.shell("hamburg", "elsewhere", "timeout 3 wget -q -O - http://"+echo+":8080"); err != nil {
		t.Errorf("from a pod of one worker to one of another: %v %s", err, text)
	}
	audit, err := os.ReadFile(filepath.Join(b.state, "hamburg", "logs", "audit.log"))
	if err != nil || !strings.Contains(string(audit), `"elsewhere"`) {
		t.Errorf("the audit log tells nothing of the pod: %v", err)
	}
	b.run("up", "hamburg", "--workers", "1", "--audit=false", "--simulated-nodes", "0", "--extra-scheduler", "")
	if nodes := b.kubectl("hamburg", "get", "nodes", "-o", "name"); nodes != "node/hamburg-worker-1" {
		t.Errorf("nodes that are left: %s", nodes)
	}
	if text, err := b.try("up", "hamburg", "--pod-cidr", "10.200.0.0/16"); err == nil || !strings.Contains(text, "take it down first") {
		t.Errorf("change of the pod CIDR: %v %s", err, text)
	}
}

func failureNamesTheComponent(t *testing.T, b *bed) {
	text, err := b.try("up", "bremen", "--workers", "0", "--arg", "scheduler:no-such-flag=1", "--arg", "apiserver:no-such-flag=1")
	if err == nil {
		t.Fatal("a flag that does not exist was taken")
	}
	for _, want := range []string{"cluster bremen", "apiserver has ended", "unknown flag: --no-such-flag"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in:\n%s", want, text)
		}
	}
	b.run("down", "bremen")
}

func loadedImageRuns(t *testing.T, b *bed) {
	archive := filepath.Join(t.TempDir(), "greeting.tar")
	build := []string{"-o", archive, "--tag", "hanse.dev/test/greeting:v7", "--file", "/bin/busybox=/busybox", "--entrypoint", "/busybox", "--cmd", "echo", "--cmd", "ahoy"}
	if text, err := output(commandContext(t, filepath.Join(b.bin, "scratch-image"), build...)); err != nil {
		t.Fatalf("scratch-image: %v %s", err, text)
	}
	b.run("load", archive, "lubeck")
	b.kubectl("lubeck", "run", "greeting", "--image=hanse.dev/test/greeting:v7", "--restart=Never", "--image-pull-policy=Never")
	b.kubectl("lubeck", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/greeting", "--timeout=60s")
	if logs := b.kubectl("lubeck", "logs", "greeting"); logs != "ahoy" {
		t.Errorf("logs: %q", logs)
	}
}

func oneClusterGoes(t *testing.T, b *bed) {
	b.run("down", "hamburg")
	if _, err := b.try("kubeconfig", "hamburg"); err == nil {
		t.Error("a cluster that is gone has a kubeconfig")
	}
	if text, err := b.shell("lubeck", "shell", "echo alive"); err != nil {
		t.Errorf("the other cluster: %v %s", err, text)
	}
}

// TestE2EDownAfterKill kills the testbed in the middle of things, and half of the components, and takes away its memory.
func TestE2EDownAfterKill(t *testing.T) {
	b := newBed(t)
	before := look(t)
	up := commandContext(t, filepath.Join(b.bin, "testbed"), "--state", b.state, "up", "bremen", "rostock")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	b.eventually("an API server", func() error {
		_, err := os.Stat(filepath.Join(b.state, "rostock", "pids", "apiserver.json"))
		return err
	})
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = up.Wait()
	b.downLeavesNothing(before)

	before = look(t)
	b.run("up", "bremen", "rostock")
	b.apply("bremen", workload)
	b.kubectl("bremen", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	for _, component := range []string{"containerd/1", "kubelet/1", "apiserver"} {
		b.run("kill", "bremen", component)
	}
	if err := os.RemoveAll(filepath.Join(b.state, "bremen", "pids")); err != nil {
		t.Fatal(err)
	}
	b.downLeavesNothing(before)

	before = look(t)
	b.run("up", "bremen")
	b.apply("bremen", workload)
	b.kubectl("bremen", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	_ = os.RemoveAll(b.state) // perhaps not all of it, because much is still running there
	b.downLeavesNothing(before)
}

// TestE2ETestbedsCoexist has two testbeds with clusters of the same name.
func TestE2ETestbedsCoexist(t *testing.T) {
	one, other := newBed(t), newBed(t)
	done := make(chan error, 1)
	go func() {
		text, err := other.try("up", "lubeck", "--workers", "0", "--simulated-nodes", "1")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, text)
		}
		done <- err
	}()
	one.run("up", "lubeck", "--workers", "0", "--simulated-nodes", "1")
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(2 * waitTimeout):
		t.Fatal("the other testbed takes too long")
	}
	if one.slot() == other.slot() {
		t.Errorf("both have slot %s", one.slot())
	}
	one.kubectl("lubeck", "create", "namespace", "only-here")
	if namespaces := other.kubectl("lubeck", "get", "namespaces", "-o", "name"); strings.Contains(namespaces, "only-here") {
		t.Error("both are the same cluster")
	}
	one.run("down")
	other.kubectl("lubeck", "get", "--raw", "/readyz")
	other.run("down")
}
