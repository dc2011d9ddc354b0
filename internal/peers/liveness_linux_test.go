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

func TestCutOfAnIdleLinkIsNoticedWithinItsTimeoutAndSoIsItsEnd(t *testing.T) {
	w := newWorld(t, Config{PingAfter: time.Hour})
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
	// A third of the time is left for another attempt.
	if took := until(mirror, false); took > DefaultLinkTimeout-500*time.Millisecond {
		t.Errorf("it took %s to notice", took)
	}
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
	if took := until(mirror, true); took > 2*time.Second {
		t.Errorf("it took %s to notice that the peer is back", took)
	}
}

// until returns how long it takes until the mirror is up to date, or is not.
func until(mirror *Mirror, upToDate bool) time.Duration {
	began := time.Now()
	for hasFailed(mirror) == upToDate && time.Since(began) < time.Minute {
		time.Sleep(10 * time.Millisecond)
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

func TestUnansweredRequestFailsWithinTheLinkTimeout(t *testing.T) {
	w := newWorld(t, Config{PingAfter: time.Hour})
	defer w.server.CloseClientConnections() // it has not heard of their end
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, infoWith(nil)) })
	link := w.connect()
	if _, err := link.ClusterInfo(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.cut(true)
	cutAt := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := link.ClusterInfo(ctx)
	if took := time.Since(cutAt); took > DefaultLinkTimeout || !errors.Is(err, ErrUnreachable) {
		t.Errorf("after %s: %v", took, err)
	}
}
