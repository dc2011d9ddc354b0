package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
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
	address := far.startRelay(t)
	mustTestbed(t, "detour", c.Name, far.Name, address)
	t.Cleanup(func() { mustTestbed(t, "detour", c.Name, far.Name, "off") })
	// Connections that are open go on as they are.
	if _, err := c.Kubectl(t.Context(), "rollout", "restart", "-n", v1alpha1.SystemNamespace, "deployment/hanse-manager"); err != nil {
		t.Fatal(err)
	}
	eventually(t, far.Name+" is far", func(ctx context.Context) error {
		peer, err := c.peer(ctx, far.Name)
		if err == nil && (peer.Status.RoundTripTime == nil || peer.Status.RoundTripTime.Duration < away) {
			err = errors.New("it does not show in the round-trip time: " + conditionsOf(peer))
		}
		return err
	})
}

// startRelay passes connections on to the cluster's API server, and returns where it listens.
func (c *cluster) startRelay(t *testing.T) string {
	t.Helper()
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener := c.listen(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go relay(from, server.Host)
		}
	}()
	return listener.Addr().String()
}

// listen listens where the processes and pods of all clusters reach it: on the bridge that they are on.
func (c *cluster) listen(t *testing.T) net.Listener {
	t.Helper()
	machine, err := c.Machine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(machine, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return listener
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
