// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestE2EBehindNAT has a cluster that reaches others, and that others do not reach.
func TestE2EBehindNAT(t *testing.T) {
	b := newBed(t)
	before := look(t)
	b.withShell([]string{"bremen"}, "--nat", "--workers", "2")
	b.withShell([]string{"lubeck"})
	b.apply("lubeck", openServer)
	b.kubectl("lubeck", "wait", "--for=condition=Ready", "pod/open", "--timeout=60s")
	for _, story := range []struct {
		name string
		tell func(*testing.T, *bed)
	}{
		{"NodesReachOthersUnderOneAddress", nodesReachOthersUnderOneAddress},
		{"NobodyReachesTheNodes", nobodyReachesTheNodes},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, &bed{t: t, bin: b.bin, state: b.state}) }) {
			t.FailNow()
		}
	}
	b.downLeavesNothing(before)
}

func nodesReachOthersUnderOneAddress(t *testing.T, b *bed) {
	lubeck := b.nodeAddress("lubeck", ".")
	text, err := b.shell("bremen", "shell", "timeout 5 wget -q -O - http://"+lubeck+":8080/")
	if err != nil || !strings.Contains(text, `"client": "`+b.host("bremen")+":") {
		t.Errorf("a pod reaches others under the address %s: %v %s", b.host("bremen"), err, text)
	}
	b.expectLate("bremen", lubeck, 0)
	if text, err := b.shell("bremen", "shell", "nslookup kubernetes.default.svc.cluster.local "+b.host("lubeck")); err != nil {
		t.Errorf("UDP comes back: %v %s", err, text)
	}
	if left := b.udpTimeout("bremen"); left < 1 || left > 30 {
		t.Errorf("UDP is forgotten after %d s", left)
	}
	b.expectLate("bremen", b.worker("bremen", 2), 0)
}

func nobodyReachesTheNodes(t *testing.T, b *bed) {
	worker, control := b.nodeAddress("bremen", "."), b.host("bremen")
	for _, address := range []string{worker, control} {
		if got := b.ping("lubeck", "-c 2 -i 0.1", address); got.received != 0 {
			t.Errorf("%s answers others: %+v", address, got)
		}
	}
	for _, port := range []string{worker + " 10250", control + " 6443"} {
		if text, err := b.shell("lubeck", "shell", "timeout 2 nc "+port+" </dev/null"); err == nil {
			t.Errorf("others reach %s: %s", port, text)
		}
	}
	if text, err := b.try("up", "bremen", "--nat=false"); err == nil || !strings.Contains(text, "take it down first") {
		t.Errorf("NAT was taken away: %v %s", err, text)
	}
}

// openServer is an HTTP server at a port of its node.
const openServer = `
apiVersion: v1
kind: Pod
metadata: {name: open}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: echo
    image: hanse.dev/test/echo:v1
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
`

// host is the address of a cluster's API server.
func (b *bed) host(cluster string) string {
	b.t.Helper()
	server := b.kubectl(cluster, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
	return strings.TrimSuffix(strings.TrimPrefix(server, "https://"), ":6443")
}

func (b *bed) worker(cluster string, number int) string {
	b.t.Helper()
	return b.kubectl(cluster, "get", "node", fmt.Sprintf("%s-worker-%d", cluster, number),
		"-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
}

var udpConnection = regexp.MustCompile(`udp +17 (\d+) `)

// udpTimeout is for how long the control plane's node of a cluster still remembers a UDP connection on which nothing is sent.
func (b *bed) udpTimeout(cluster string) int {
	b.t.Helper()
	netns := "--net=/run/netns/hanse" + b.slot() + "-" + cluster + "-0"
	text, err := output(commandContext(b.t, "nsenter", netns, "conntrack", "-L", "-p", "udp"))
	found := udpConnection.FindStringSubmatch(text)
	if err != nil || found == nil {
		b.t.Fatalf("UDP connections of %s: %v %s", cluster, err, text)
	}
	left, _ := strconv.Atoi(found[1])
	return left
}
