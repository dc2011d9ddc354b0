// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// cut takes the peer off the network, or puts it back: the kernel drops whatever comes to the peer's sockets, unanswered,
// as if a cable had been cut.
func (w *world) cut(cut bool) {
	w.wire.mu.Lock()
	defer w.wire.mu.Unlock()
	w.filter(w.wire.Listener, cut)
	for _, conn := range w.wire.conns {
		w.filter(conn, cut)
	}
	w.wire.taken = func(conn net.Conn) { w.filter(conn, cut) }
}

// filter attaches a program to the socket that lets nothing through, or detaches it.
func (w *world) filter(socket any, attach bool) {
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		w.t.Errorf("reach socket: %v", err)
		return
	}
	drop := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}}
	_ = raw.Control(func(fd uintptr) { // one that was closed meanwhile needs no filter
		if attach {
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &drop)
			return
		}
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		w.t.Errorf("filter socket: %v", err)
	}
}

// slowConfig turns off every timeout but the link timeout: TCP alone retries for a quarter of an hour. A cut that is noticed
// within a minute was therefore noticed by the link timeout, however busy the machine is.
var slowConfig = Config{PingAfter: time.Hour, Timeout: time.Hour}

const noticed = time.Minute

func TestCutOfAnIdleLinkIsNoticedAndSoIsItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slowConfig)
	defer w.server.CloseClientConnections() // it has not heard of their end
	server := &apiServer{pages: []string{listOf(t, "", mapping("shop", "1"))}, events: make(chan string)}
	w.answers(server.serve)
	mirror, err := w.connect().Watch(t.Context(), Mappings, tenant, func(types.NamespacedName) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := mirror.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.events <- event(t, "MODIFIED", mapping("shop", "2")) // so the watch is open

	select {
	case <-mirror.Failed():
		t.Fatalf("it fails before the cut: %v", mirror.Err())
	case <-time.After(3 * time.Second):
	}
	w.cut(true)
	t.Logf("the cut was noticed after %s", until(t, mirror, false))
	if err := mirror.Err(); !errors.Is(err, ErrLost) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("the mirror says %v", err)
	}
	// Attempts to connect again time out meanwhile, which is no answer.
	for began := time.Now(); time.Since(began) < 2*DefaultLinkTimeout; time.Sleep(10 * time.Millisecond) {
		if mirror.Err() == nil {
			t.Fatalf("after %s the mirror says that the peer answers", time.Since(began))
		}
	}
	w.cut(false)
	t.Logf("the end of the cut was noticed after %s", until(t, mirror, true))
}

// until waits until the mirror is up to date, or is not, and returns how long that took.
func until(t *testing.T, mirror *Mirror, upToDate bool) time.Duration {
	t.Helper()
	began := time.Now()
	for ; hasFailed(mirror) == upToDate; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > noticed {
			t.Fatalf("after %s, up to date is not %t: %v", noticed, upToDate, mirror.Err())
		}
	}
	return time.Since(began)
}

func hasFailed(mirror *Mirror) bool {
	select {
	case <-mirror.Failed():
		return true
	default:
		return mirror.Err() != nil
	}
}

func TestUnansweredRequestFailsByTheLinkTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slowConfig)
	defer w.server.CloseClientConnections() // it has not heard of their end
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, infoWith(nil)) })
	link := w.connect()
	if _, err := link.ClusterInfo(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.cut(true)
	ctx, cancel := context.WithTimeout(t.Context(), noticed)
	defer cancel()
	if _, err := link.ClusterInfo(ctx); !errors.Is(err, ErrUnreachable) || ctx.Err() != nil {
		t.Errorf("got %v, want that the peer is unreachable before the caller's own time is over", err)
	}
}
