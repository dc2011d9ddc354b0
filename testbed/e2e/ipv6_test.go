// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestE2EIPv6 has a cluster with both families, and one with IPv6 alone that is behind NAT.
func TestE2EIPv6(t *testing.T) {
	b := newBed(t)
	before := look(t)
	b.run("up", "wismar", "--ip-families", "dual", "--workers", "2")
	b.run("up", "rostock", "--ip-families", "ipv6", "--nat")
	for _, cluster := range []string{"wismar", "rostock"} {
		b.apply(cluster, workload)
	}
	b.apply("wismar", bothFamilies)
	for _, cluster := range []string{"wismar", "rostock"} {
		b.kubectl(cluster, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	}
	for _, story := range []struct {
		name string
		tell func(*testing.T, *bed)
	}{
		{"PodsAndServicesOfBothFamilies", podsAndServicesOfBothFamilies},
		{"OnlyIPv6", onlyIPv6},
		{"IPv6BetweenClusters", ipv6BetweenClusters},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, &bed{t: t, bin: b.bin, state: b.state}) }) {
			t.FailNow()
		}
	}
	b.downLeavesNothing(before)
}

// bothFamilies is a server on one worker with a Service of both families, and a shell on the other.
const bothFamilies = `
apiVersion: v1
kind: Pod
metadata: {name: served, labels: {app: served}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: wismar-worker-1}
  containers: [{name: echo, image: "hanse.dev/test/echo:v1", readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}}]
---
apiVersion: v1
kind: Service
metadata: {name: served}
spec: {ipFamilyPolicy: RequireDualStack, selector: {app: served}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: elsewhere}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: wismar-worker-2}
  containers: [{name: shell, image: "hanse.dev/test/busybox:v1", command: [sleep, infinity]}]
`

func podsAndServicesOfBothFamilies(t *testing.T, b *bed) {
	addresses := b.kubectl("wismar", "get", "pod", "served", "-o", "jsonpath={.status.podIPs[*].ip}") + " " +
		b.kubectl("wismar", "get", "service", "served", "-o", "jsonpath={.spec.clusterIPs[*]}")
	found := strings.Fields(addresses)
	if len(found) != 4 || !strings.HasPrefix(found[0], "10.244.") || !strings.HasPrefix(found[1], "fd00:10:244:") ||
		!strings.HasPrefix(found[2], "10.") || !strings.HasPrefix(found[3], "fd00:10:96::") {
		t.Fatalf("addresses of the pod and its Service: %s", addresses)
	}
	for _, url := range []string{"http://" + found[0] + ":8080", "http://[" + found[1] + "]:8080", "http://" + found[2], "http://[" + found[3] + "]"} {
		b.eventually(url+" from a pod on the other worker", func() error {
			text, err := b.shell("wismar", "elsewhere", "timeout 3 wget -q -O - "+url)
			if err != nil || !strings.Contains(text, `"hostname": "served"`) {
				return fmt.Errorf("%w: %s", err, text)
			}
			return nil
		})
	}
	for _, server := range strings.Fields(b.kubectl("wismar", "get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.spec.clusterIPs[*]}")) {
		text, err := b.shell("wismar", "elsewhere", "nslookup -type=aaaa served.default.svc.cluster.local "+server)
		if err != nil || !strings.Contains(text, found[3]) {
			t.Errorf("the Service's IPv6 address in DNS at %s: %v %s", server, err, text)
		}
	}
}

// onlyIPv6 goes to a Service by name, which needs an API server, DNS and kube-proxy with IPv6.
func onlyIPv6(t *testing.T, b *bed) {
	b.eventually("the Service", func() error {
		text, err := b.shell("rostock", "shell", "timeout 3 wget -q -O - http://echo.default.svc.cluster.local/")
		if err != nil || !strings.Contains(text, `"node": "rostock-worker-1"`) {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	if addresses := b.kubectl("rostock", "get", "pods", "-o", "jsonpath={.items[*].status.podIPs[*].ip}"); strings.Contains(addresses, ".") {
		t.Errorf("pods have the addresses %s", addresses)
	}
	if logs := b.kubectl("rostock", "logs", "deployment/echo"); !strings.Contains(logs, "echo listens") {
		t.Errorf("logs: %q", logs)
	}
}

func ipv6BetweenClusters(t *testing.T, b *bed) {
	wismar, rostock := b.nodeAddress("wismar", ":"), b.nodeAddress("rostock", ":")
	b.expectLate("rostock", wismar, 0)
	b.run("link", "rostock", "wismar", "--delay", "50ms")
	b.expectLate("rostock", wismar, 100*time.Millisecond)
	b.expectLate("rostock", rostock, 0)
	b.run("link", "rostock", "off")
	if got := b.ping("wismar", "-c 2 -i 0.1", rostock); got.received != 0 {
		t.Errorf("it is behind NAT, and answers: %+v", got)
	}
	b.run("cut", "rostock", "wismar")
	if got := b.ping("rostock", "-c 2 -i 0.1", wismar); got.received != 0 {
		t.Errorf("they are cut off from each other, and answer: %+v", got)
	}
	b.run("heal", "rostock", "wismar")
	b.expectLate("rostock", wismar, 0)
}
