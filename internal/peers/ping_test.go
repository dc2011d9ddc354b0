// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A relay stands between us and the peer, and sees when we say something.
type relay struct {
	listener net.Listener
	said     chan struct{} // something went to the peer since it was read last
	working  sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, said: make(chan struct{}, 1)}
	r.working.Go(func() {
		for {
			ours, err := listener.Accept()
			if err != nil {
				return
			}
			theirs, err := net.Dial("tcp", to) //nolint:noctx // it ends with the relay
			if err != nil {
				_ = ours.Close()
				return
			}
			r.working.Go(func() { r.pass(theirs, io.TeeReader(ours, r)) })
			r.working.Go(func() { r.pass(ours, theirs) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.working.Wait()
	})
	return r
}

func (*relay) pass(to io.WriteCloser, from io.Reader) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
}

// Write notes that we have said something.
func (r *relay) Write(p []byte) (int, error) {
	select {
	case r.said <- struct{}{}:
	default:
	}
	return len(p), nil
}

func TestSilentConnectionIsPingedAsOftenAsAsked(t *testing.T) {
	for name, test := range map[string]struct {
		after  time.Duration
		pinged bool
	}{"soon": {10 * time.Millisecond, true}, "hardly ever": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{PingAfter: test.after})
			w.answers(func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, infoWith(nil)) })
			server, err := url.Parse(w.server.URL)
			if err != nil {
				t.Fatal(err)
			}
			between := newRelay(t, server.Host)
			config := w.kubeconfig()
			config.Clusters["peer"].Server = "https://" + between.listener.Addr().String()
			w.store(map[string][]byte{v1alpha1.LinkSecretKey: encode(t, config)})
			link := w.ensure()
			t.Cleanup(link.close)
			if _, err := link.ClusterInfo(t.Context()); err != nil {
				t.Fatal(err)
			}
			limit := 300 * time.Millisecond
			if test.pinged {
				limit = time.Minute
			}
			var pings int
			for quiet := time.After(limit); pings < 5; {
				select {
				case <-between.said:
					pings++
				case <-quiet:
					// What comes with the answer itself, such as the settings of the connection, is no ping.
					if test.pinged || pings > 3 {
						t.Errorf("it was pinged %d times", pings)
					}
					return
				}
			}
			if !test.pinged {
				t.Error("it was pinged over and over")
			}
		})
	}
}
