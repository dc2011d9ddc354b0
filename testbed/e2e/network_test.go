// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shellPod is a pod with a shell.
const shellPod = `
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: shell, image: hanse.dev/test/busybox:v1, command: [sleep, infinity]}]
`

// withShell brings clusters up in which a pod has a shell.
func (b *bed) withShell(clusters []string, options ...string) {
	b.t.Helper()
	b.run(append(append([]string{"up"}, clusters...), options...)...)
	for _, cluster := range clusters {
		b.apply(cluster, shellPod)
	}
	for _, cluster := range clusters {
		b.kubectl(cluster, "wait", "--for=condition=Ready", "pod/shell", "--timeout=60s")
	}
}

// nodeAddress is the worker's, of one kind: a part of it tells which.
func (b *bed) nodeAddress(cluster, part string) string {
	b.t.Helper()
	all := b.kubectl(cluster, "get", "node", cluster+"-worker-1", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	for _, address := range strings.Fields(all) {
		if strings.Contains(address, part) {
			return address
		}
	}
	b.t.Fatalf("the worker of %s has the addresses %s, none with %q", cluster, all, part)
	return ""
}

// TestE2ELinks makes the connection between two clusters bad in each way that there is, and looks from pods.
func TestE2ELinks(t *testing.T) {
	b := newBed(t)
	before := look(t)
	b.withShell([]string{"lubeck", "hamburg"})
	for _, story := range []struct {
		name string
		tell func(*testing.T, *bed)
	}{
		{"DelayBothWays", delayBothWays},
		{"SomePacketsGetLost", somePacketsGetLost},
		{"LargePacketsVanish", largePacketsVanish},
		{"RateIsLimited", rateIsLimited},
		{"PeerIsNotEverybody", peerIsNotEverybody},
		{"LinkSurvivesItsProcess", linkSurvivesItsProcess},
		{"LinkEndsWithItsPeer", linkEndsWithItsPeer},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, &bed{t: t, bin: b.bin, state: b.state}) }) {
			t.FailNow()
		}
	}
	b.downLeavesNothing(before)
}

var (
	statistics = regexp.MustCompile(`(\d+) packets transmitted, (\d+) packets received`)
	roundTrips = regexp.MustCompile(`min/avg/max = ([\d.]+)/`)
)

// echoes is what ping(8) tells.
type echoes struct {
	sent, received int
	fastest        time.Duration
}

// ping sends echo requests from the pod of a cluster.
func (b *bed) ping(cluster, options, address string) echoes {
	b.t.Helper()
	text, _ := b.shell(cluster, "shell", "ping -q -W 1 "+options+" "+address) // it is an error if none comes back
	counts := statistics.FindStringSubmatch(text)
	if counts == nil {
		b.t.Fatalf("ping %s %s: %s", options, address, text)
	}
	var got echoes
	got.sent, _ = strconv.Atoi(counts[1])
	got.received, _ = strconv.Atoi(counts[2])
	if trips := roundTrips.FindStringSubmatch(text); trips != nil {
		milliseconds, _ := strconv.ParseFloat(trips[1], 64)
		got.fastest = time.Duration(milliseconds * float64(time.Millisecond))
	}
	return got
}

// expectLate wants all echoes back, and none sooner nor much later than after the delay.
func (b *bed) expectLate(cluster, address string, delay time.Duration) {
	b.t.Helper()
	const much = 100 * time.Millisecond
	if got := b.ping(cluster, "-c 5 -i 0.1", address); got.received != 5 || got.fastest < delay || got.fastest > delay+much {
		b.t.Errorf("from %s to %s, want 5 echoes after %s: %+v", cluster, address, delay, got)
	}
}

func delayBothWays(t *testing.T, b *bed) {
	lubeck, hamburg := b.nodeAddress("lubeck", "."), b.nodeAddress("hamburg", ".")
	b.expectLate("lubeck", hamburg, 0)
	b.run("link", "lubeck", "--delay", "100ms")
	b.expectLate("lubeck", hamburg, 200*time.Millisecond)
	b.expectLate("hamburg", lubeck, 200*time.Millisecond)
	b.expectLate("lubeck", lubeck, 0) // within the cluster nothing is late
	if took := b.timed("lubeck", "timeout 3 nc "+hamburg+" 10250"); took < 200*time.Millisecond {
		t.Errorf("a TCP connection took %s", took)
	}
	if text := b.run("status"); !strings.Contains(text, "link with everybody else: delay 100ms") {
		t.Errorf("status does not tell of it:\n%s", text)
	}
	b.run("link", "lubeck", "off")
	b.expectLate("lubeck", hamburg, 0)
}

var realTime = regexp.MustCompile(`real\s+([\d.]+)`)

// timed tells how long a command takes in the pod of a cluster.
func (b *bed) timed(cluster, command string) time.Duration {
	b.t.Helper()
	text, err := b.shell(cluster, "shell", "time -p "+command+" </dev/null >/dev/null")
	found := realTime.FindStringSubmatch(text)
	if err != nil || found == nil {
		b.t.Fatalf("%s in %s: %v: %s", command, cluster, err, text)
	}
	seconds, _ := strconv.ParseFloat(found[1], 64)
	return time.Duration(seconds * float64(time.Second))
}

func somePacketsGetLost(t *testing.T, b *bed) {
	b.run("link", "lubeck", "--loss", "20%")
	got := b.ping("lubeck", "-c 400 -i 0.01", b.nodeAddress("hamburg", "."))
	// Both ways: 36 % of 400 are 144, and 40 of them more or less are four standard deviations.
	if lost := got.sent - got.received; lost < 104 || lost > 184 {
		t.Errorf("%d of %d echoes got lost", lost, got.sent)
	}
	if got := b.ping("lubeck", "-c 100 -i 0.01", b.nodeAddress("lubeck", ".")); got.received != 100 {
		t.Errorf("within the cluster nothing gets lost: %+v", got)
	}
	b.run("link", "lubeck", "off")
}

func largePacketsVanish(t *testing.T, b *bed) {
	b.run("link", "lubeck", "hamburg", "--mtu", "1280")
	for _, way := range []struct{ from, to string }{{"lubeck", "hamburg"}, {"hamburg", "lubeck"}} {
		address := b.nodeAddress(way.to, ".")
		const headers = 28 // of IPv4 and ICMP
		if got := b.ping(way.from, fmt.Sprintf("-c 3 -i 0.1 -s %d", 1280-headers), address); got.received != 3 {
			t.Errorf("packets of 1,280 bytes from %s: %+v", way.from, got)
		}
		text, _ := b.shell(way.from, "shell", fmt.Sprintf("ping -c 2 -i 0.1 -W 1 -s %d %s", 1281-headers, address))
		if !strings.Contains(text, " 0 packets received") || strings.Contains(text, "needed") || strings.Contains(text, "unreachable") {
			t.Errorf("packets of 1,281 bytes from %s: %s", way.from, text)
		}
	}
	// Large segments of TCP, which the kernel puts together on its way, are real packets here: the answer never arrives.
	b.apply("hamburg", bigServer)
	b.kubectl("hamburg", "wait", "--for=condition=Ready", "pod/big", "--timeout=60s")
	get := "exec 2>/dev/null; timeout 3 nc " + b.nodeAddress("hamburg", ".") + " 7777 </dev/null | wc -c"
	if text, _ := b.shell("lubeck", "shell", get); strings.TrimSpace(text) != "0" {
		t.Errorf("of a large answer arrive %s bytes", strings.TrimSpace(text))
	}
	b.run("link", "lubeck", "hamburg", "off")
	b.eventually("the large answer", func() error {
		text, err := b.shell("lubeck", "shell", get)
		if strings.TrimSpace(text) != strconv.Itoa(bigAnswer) {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
}

const bigAnswer = 1000000

// bigServer answers each connection to a port of its node with a million bytes.
const bigServer = `
apiVersion: v1
kind: Pod
metadata: {name: big}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: big
    image: hanse.dev/test/busybox:v1
    command: [nc, -ll, -p, "7777", -e, head, -c, "1000000", /dev/zero]
`

func rateIsLimited(t *testing.T, b *bed) {
	b.run("link", "lubeck", "--rate", "8mbit")
	if took := b.timed("lubeck", "nc "+b.nodeAddress("hamburg", ".")+" 7777"); took < 900*time.Millisecond {
		t.Errorf("8 Mbit at 8 Mbit/s took %s", took)
	}
	b.run("link", "lubeck", "off")
}

func peerIsNotEverybody(t *testing.T, b *bed) {
	b.run("link", "lubeck", "--loss", "100%")
	b.run("link", "lubeck", "hamburg", "--delay", "50ms")
	b.expectLate("lubeck", b.nodeAddress("hamburg", "."), 100*time.Millisecond) // what is said of the peer holds
	b.run("link", "lubeck", "hamburg", "off")
	if got := b.ping("lubeck", "-c 2 -i 0.1", b.nodeAddress("hamburg", ".")); got.received != 0 {
		t.Errorf("then what is said of everybody: %+v", got)
	}
	b.kubectl("lubeck", "get", "--raw", "/readyz") // this machine is spared
	b.run("link", "lubeck", "off")
	if text, err := b.try("link", "lubeck", "nobody", "--mtu", "1280"); err == nil || !strings.Contains(text, "no such cluster") {
		t.Errorf("a link with nobody: %v %s", err, text)
	}
}

func linkSurvivesItsProcess(t *testing.T, b *bed) {
	b.run("link", "lubeck", "--delay", "20ms")
	b.run("kill", "lubeck", "link")
	if _, err := b.shell("lubeck", "shell", "true"); err == nil {
		t.Error("the cable is gone, yet the API server is reached")
	}
	b.run("up", "lubeck", "--workers", "2") // the new one is behind the link too
	b.expectLate("lubeck", b.nodeAddress("hamburg", "."), 40*time.Millisecond)
	b.run("up", "lubeck", "--workers", "1")
	if said := b.run("up", "lubeck"); said != "" {
		t.Errorf("nothing was to be done, but it said:\n%s", said)
	}
	b.run("link", "lubeck", "off")
}

func linkEndsWithItsPeer(t *testing.T, b *bed) {
	b.run("link", "lubeck", "hamburg", "--delay", "20ms")
	b.run("down", "hamburg")
	if text := b.run("status"); strings.Contains(text, "link") {
		t.Errorf("a link with a cluster that is gone:\n%s", text)
	}
	if text, err := b.shell("lubeck", "shell", "true"); err != nil {
		t.Error(errors.Join(err, errors.New(text)))
	}
	b.run("link", "lubeck", "--delay", "20ms") // for down to end
}
