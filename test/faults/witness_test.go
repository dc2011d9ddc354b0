// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// A run is the life of one container, as the container itself showed it: it holds a connection to the witness for as long
// as it lives, which its kernel closes when it dies, however it dies.
type run struct {
	home, pod  string // the UID of the home pod and its name, which no two objects of the load share
	instance   string // a number that the container drew when it started
	from, till time.Time
	lives      bool      // it has not ended
	completed  time.Time // when it said that its work was done; zero if it did not
}

// A witness sees which containers run for which home pod, whatever API servers say.
type witness struct {
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	runs  map[string]*run // by instance
	conns sets.Set[net.Conn]
}

// openWitness listens on the address until its context ends.
func openWitness(ctx context.Context, address string) (*witness, error) {
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 4}}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for containers: %w", err)
	}
	w := &witness{listener: listener, runs: map[string]*run{}, conns: sets.New[net.Conn]()}
	w.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.add(conn)
			w.work.Go(func() { w.hear(conn) })
		}
	})
	return w, nil
}

func (w *witness) add(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns.Insert(conn)
}

// hear listens to one container until its connection ends.
func (w *witness) hear(conn net.Conn) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conns.Delete(conn)
		_ = conn.Close()
	}()
	lines := bufio.NewScanner(conn)
	instance := ""
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) != 4 {
			return
		}
		now := time.Now()
		is := run{home: words[1], pod: words[3], instance: words[2]}
		if words[0] == saysDone {
			w.note(is, func(r *run) { r.completed = now })
			return
		}
		instance = words[2]
		w.note(is, func(r *run) { r.lives = true })
	}
	if instance != "" {
		now := time.Now()
		w.note(run{instance: instance}, func(r *run) { r.till, r.lives = now, false })
	}
}

func (w *witness) note(is run, change func(*run)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.runs[is.instance]
	if r == nil {
		r = &is
		r.from = time.Now()
		w.runs[is.instance] = r
	}
	change(r)
}

// seen returns what was seen until now, in the order of the containers' starts.
func (w *witness) seen() []run {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := make([]run, 0, len(w.runs))
	for _, r := range w.runs {
		runs = append(runs, *r)
	}
	slices.SortFunc(runs, func(a, b run) int { return a.from.Compare(b.from) })
	return runs
}

func (w *witness) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for conn := range w.conns {
		_ = conn.Close()
	}
	w.mu.Unlock()
	w.work.Wait()
}

const (
	saysAlive = "alive"
	saysDone  = "done"
)

// script is what containers run, with busybox alone: they hold the connection to the witness, and make a new one should
// that break; after so many seconds they say that they are done, wait for the answer, and end well. One that is asked to end
// before its work is done fails, so that its work is done again and no Job counts it.
func script(address string, deaf bool, seconds int) string {
	host, port, _ := net.SplitHostPort(address)
	code, life := "0", "1000000"
	if seconds >= 0 {
		code, life = "1", fmt.Sprint(seconds)
	}
	trap := "trap 'exit " + code + "' TERM"
	if deaf {
		trap = "trap '' TERM"
	}
	return fmt.Sprintf(`b=/bin/busybox
id=$($b cat /proc/sys/kernel/random/uuid)
%s
while :; do { echo "%s $HOME_UID $id $HOME_NAME"; exec $b sleep 1000000; } | $b nc %s %s; $b sleep 0.1; done &
$b sleep %s & wait $!
trap '' TERM
echo "%s $HOME_UID $id $HOME_NAME" | $b nc -w 5 %s %s
exit 0`, trap, saysAlive, host, port, life, saysDone, host, port)
}

func TestWitnessSeesContainersLiveAndEnd(t *testing.T) {
	w, err := openWitness(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	say := func(text string) net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(conn, text); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	await := func(what string, is func([]run) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(w.seen()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", what, w.seen())
			}
		}
	}
	first := say("alive home-1 a web-0")
	await("one lives", func(runs []run) bool {
		return len(runs) == 1 && runs[0].lives && of(runs[0].home, runs[0].pod) == "home-1/web-0"
	})
	say("done home-1 a web-0")
	await("it is done", func(runs []run) bool { return !runs[0].completed.IsZero() && runs[0].lives })
	_ = first.Close()
	await("it has ended", func(runs []run) bool { return !runs[0].lives && !runs[0].till.IsZero() })
	again := say("alive home-1 a web-0")
	await("the same is no second one", func(runs []run) bool { return len(runs) == 1 && runs[0].lives })
	_ = again.Close()
	say("alive home-1 b web-0")
	await("another is one", func(runs []run) bool { return len(runs) == 2 && runs[1].lives })
	say("rubbish")
}
