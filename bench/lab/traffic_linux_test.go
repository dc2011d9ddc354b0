// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"io"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// accept listens and returns both ends of a connection to itself.
func accept(t *testing.T) (client, server net.Conn, address netip.AddrPort) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // nothing was written
	client, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server, netip.MustParseAddrPort(listener.Addr().String())
}

func send(t *testing.T, from, to net.Conn, count int) {
	t.Helper()
	if _, err := from.Write(make([]byte, count)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, count)); err != nil {
		t.Fatal(err)
	}
}

func TestTrafficIsThatOfConnectionsToTheAddress(t *testing.T) {
	here := Process{Name: "here", PID: os.Getpid()}
	client, server, address := accept(t)
	otherClient, otherServer, _ := accept(t)
	send(t, client, server, 100)
	before, err := here.Traffic(address)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != 1 {
		t.Fatalf("%d connections to %s, want 1", len(before), address)
	}
	send(t, client, server, 1000)
	send(t, server, client, 20_000)
	send(t, otherClient, otherServer, 5)
	send(t, client, server, 1) // takes the acknowledgement of what came before along
	after, err := here.Traffic(address)
	if err != nil {
		t.Fatal(err)
	}
	went, ended := after.Since(before)
	if went.Received != 20_000 || went.Sent < 1000 || went.Sent > 1001 || ended != 0 {
		t.Errorf("%+v went, %d connections ended; want 1001 or, as long as the last is not acknowledged, 1000 sent, and 20000 received", went, ended)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	after, err = here.Traffic(address)
	if err != nil {
		t.Fatal(err)
	}
	if _, ended := after.Since(before); ended != 1 {
		t.Errorf("%d connections ended, want 1", ended)
	}
}

func TestTrafficOfANewConnectionIsAllOfIt(t *testing.T) {
	went, ended := Traffic{1: {Sent: 15, Received: 20}, 2: {Sent: 3, Received: 4}}.Since(Traffic{1: {Sent: 5, Received: 5}, 9: {Sent: 1}})
	if diff := cmp.Diff(Bytes{Sent: 13, Received: 19}, went); diff != "" || ended != 1 {
		t.Errorf("%d connections ended, want 1; (-want +got):\n%s", ended, diff)
	}
}
