// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"k8s.io/utils/clock"
)

// portsOf returns an API server that has those ports.
func portsOf(first, last int) *apiServer {
	return &apiServer{
		config: Config{NodeIP: netip.MustParseAddr("127.0.0.1"), FirstPort: first, LastPort: last},
		clock:  clock.RealClock{}, nodes: map[string]*servedNode{},
	}
}

func newPorts(t *testing.T, first, last int) *apiServer {
	t.Helper()
	ports := portsOf(first, last)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = ports.Start(ctx)
	})
	return ports
}

// freePorts returns the first of so many ports in a row that are free.
func freePorts(t *testing.T, count int) int {
	t.Helper()
	for first := 21000; first < 29000; first += count {
		if allFree(t, first, count) {
			return first
		}
	}
	t.Fatal("no ports are free")
	return 0
}

func allFree(t *testing.T, first, count int) bool {
	t.Helper()
	probe := newPorts(t, first, first+count-1)
	for port := first; port < first+count; port++ {
		listener, err := probe.listenOn(port)
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}

func TestNodesGetPortsOfTheirOwnAndKeepThem(t *testing.T) {
	first := freePorts(t, 3)
	table := newPorts(t, first, first+2)
	open := func(node string, wanted int) int {
		t.Helper()
		at, err := table.Open(t.Context(), node, int32(wanted))
		if err != nil {
			t.Fatal(err)
		}
		return int(at.port)
	}
	if got := open("hanse-a", first+1); got != first+1 {
		t.Errorf("a wanted %d and got %d", first+1, got)
	}
	if got := open("hanse-b", first+1); got == first+1 {
		t.Error("b got the port of a")
	}
	if got := open("hanse-a", 0); got != first+1 {
		t.Errorf("a lost its port: %d", got)
	}
	open("hanse-c", 0)
	if _, err := table.Open(t.Context(), "hanse-d", 0); err == nil {
		t.Error("a fourth port of three")
	}
	table.Close("hanse-b")
	open("hanse-d", 0)
	if got := open("hanse-a", first+1); got != first+1 {
		t.Errorf("a has %d", got)
	}
}

func TestPortThatIsTakenByOthersIsSkipped(t *testing.T) {
	first := freePorts(t, 2)
	table := newPorts(t, first, first+1)
	other, err := table.listenOn(first)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // test
	at, err := table.Open(t.Context(), "hanse-a", int32(first))
	if err != nil || int(at.port) != first+1 {
		t.Errorf("got %v, %v", at, err)
	}
}

func TestWantedPortOutsideTheRangeIsNotTaken(t *testing.T) {
	first := freePorts(t, 2)
	table := newPorts(t, first, first)
	at, err := table.Open(t.Context(), "hanse-a", int32(first+1))
	if err != nil || int(at.port) != first {
		t.Errorf("got %v, %v", at, err)
	}
}

func TestClosingANodeEndsItsConnections(t *testing.T) {
	first := freePorts(t, 1)
	table := newPorts(t, first, first)
	at, err := table.Open(t.Context(), "hanse-a", 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", netip.AddrPortFrom(table.config.NodeIP, uint16(at.port)).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // test
	table.Close("hanse-a")
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
}
