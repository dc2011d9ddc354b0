package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// away is how long each way takes through a relay.
const away = 40 * time.Millisecond

// isFarFrom leads what the cluster opens to another's API server through a relay that takes its time, for as long as the
// story lasts or until another is far.
func (c *cluster) isFarFrom(t *testing.T, far *cluster) {
	t.Helper()
	server, err := url.Parse(far.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	address := startRelay(t, server.Host)
	mustTestbed(t, "detour", c.name, far.name, address)
	t.Cleanup(func() { mustTestbed(t, "detour", c.name, far.name, "off") })
	// Connections that are open go on as they are.
	if _, err := c.kubectl(t.Context(), "rollout", "restart", "-n", v1alpha1.SystemNamespace, "deployment/hanse-manager"); err != nil {
		t.Fatal(err)
	}
	eventually(t, far.name+" is far", func(ctx context.Context) error {
		peer, err := c.peer(ctx, far.name)
		if err == nil && (peer.Status.RoundTripTime == nil || peer.Status.RoundTripTime.Duration < away) {
			err = errors.New("it does not show in the round-trip time: " + conditionsOf(peer))
		}
		return err
	})
}

// startRelay passes connections on to an address, and returns where it listens: on the bridge that all clusters are on.
func startRelay(t *testing.T, to string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", bridgeAddress(t, to)+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go relay(from, to)
		}
	}()
	return listener.Addr().String()
}

// bridgeAddress is this machine's address in the network of another.
func bridgeAddress(t *testing.T, other string) string {
	t.Helper()
	probe, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", other)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close() //nolint:errcheck // nothing was sent
	own, _, _ := strings.Cut(probe.LocalAddr().String(), ":")
	return own
}

func relay(from net.Conn, to string) {
	defer from.Close()                 //nolint:errcheck // it is over
	target, err := net.Dial("tcp", to) //nolint:noctx // it ends with the connection
	if err != nil {
		return
	}
	defer target.Close() //nolint:errcheck // it is over
	done := make(chan struct{}, 2)
	go func() { carry(target, from); done <- struct{}{} }()
	go func() { carry(from, target); done <- struct{}{} }()
	<-done
}

// carry copies what arrives, each piece after the time that the way takes.
func carry(to io.Writer, from io.Reader) {
	type piece struct {
		due  time.Time
		data []byte
	}
	way := make(chan piece, 1024)
	go func() {
		defer close(way)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				way <- piece{time.Now().Add(away), buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for next := range way {
		time.Sleep(time.Until(next.due))
		if _, err := to.Write(next.data); err != nil {
			return
		}
	}
}
