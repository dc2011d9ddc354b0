// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// endless is a provider whose log has no end. It says when nobody wants it any more.
func endless(ended chan<- string) http.HandlerFunc {
	piece := bytes.Repeat([]byte("a line of a log\n"), 4<<10)
	return func(rw http.ResponseWriter, _ *http.Request) {
		defer func() { ended <- "log" }()
		for {
			if _, err := rw.Write(piece); err != nil {
				return
			}
		}
	}
}

func TestLongLogTakesNoMemory(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	w := newAPIWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 1<<20)
		for range size >> 20 {
			if _, err := rw.Write(piece); err != nil {
				return
			}
		}
	})
	resp, err := w.client.Do(w.request(http.MethodGet, "/containerLogs/shop/web-1/web"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // test
	before, most := heap(), uint64(0)
	got := int64(0)
	for err == nil {
		var n int64
		n, err = io.CopyN(io.Discard, resp.Body, 64<<20)
		got += n
		most = max(most, heap())
	}
	if got != size {
		t.Errorf("%d bytes of %d: %v", got, size, err)
	}
	if most > before+16<<20 {
		t.Errorf("the heap grew from %d to %d", before, most)
	}
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestLogEndsAtThePeerWithItsClient(t *testing.T) {
	ended := make(chan string, 1)
	w := newAPIWorld(t, endless(ended))
	resp, err := w.client.Do(w.request(http.MethodGet, "/containerLogs/shop/web-1/web?follow=true"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	w.expect(ended, "log")
}

func TestLogOfSilentClientEndsAtThePeer(t *testing.T) {
	ended := make(chan string, 1)
	w := newAPIWorldWith(t, endless(ended), 200*time.Millisecond)
	resp, err := w.client.Do(w.request(http.MethodGet, "/containerLogs/shop/web-1/web?follow=true"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // test
	w.expect(ended, "log")  // though nothing was closed here
}

func TestFollowedLogEndsWithTheSite(t *testing.T) {
	ended := make(chan string, 1)
	w := newAPIWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		say(rw, "first\n")
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
		ended <- "log"
	})
	resp, err := w.client.Do(w.request(http.MethodGet, "/containerLogs/shop/web-1/web?follow=true"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // test
	if _, err := io.ReadFull(resp.Body, make([]byte, len("first\n"))); err != nil {
		t.Fatal(err)
	}
	w.links.Close(turin)
	w.expect(ended, "log")
	if rest, _ := io.ReadAll(resp.Body); len(rest) > 0 {
		t.Errorf("then came %q", rest)
	}
}

func TestLogHasNoMoreBytesThanAskedFor(t *testing.T) {
	ended := make(chan string, 1)
	w := newAPIWorld(t, endless(ended))
	if status, body := w.get("/containerLogs/shop/web-1/web?limitBytes=10"); status != http.StatusOK || body != "a line of " {
		t.Errorf("status %d, %q", status, body)
	}
	w.expect(ended, "log")
}

func TestWhatAPeerRefusesIsTold(t *testing.T) {
	status, body := 0, ""
	w := newAPIWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Set-Cookie", "evil=1")
		rw.WriteHeader(status)
		say(rw, body)
	})
	said := func(message string) string {
		raw, err := json.Marshal(metav1.Status{Message: message})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	for name, tc := range map[string]struct {
		status     int
		body       string
		wantStatus int
		want       string
	}{
		"a container that has not started": {http.StatusBadRequest, said("is waiting to start"), http.StatusBadRequest, "is waiting to start"},
		"a peer that does not let us":      {http.StatusForbidden, said("no"), http.StatusBadGateway, `peer "turin" does not allow it: no`},
		"a peer in trouble":                {http.StatusInternalServerError, "oops", http.StatusBadGateway, `peer "turin" answers with status 500: oops`},
		"lines and signs":                  {http.StatusNotFound, "a\r\n\x1b[2Jb", http.StatusNotFound, "a   [2Jb"},
		"a long story":                     {http.StatusNotFound, strings.Repeat("x", 1<<20), http.StatusNotFound, strings.Repeat("x", maxReason-3) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			status, body = tc.status, tc.body
			resp, err := w.client.Do(w.request(http.MethodGet, "/containerLogs/shop/web-1/web"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() //nolint:errcheck // test
			got, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tc.wantStatus || strings.TrimSuffix(string(got), "\n") != tc.want {
				t.Errorf("status %d, %.100q", resp.StatusCode, got)
			}
			if resp.Header.Get("Set-Cookie") != "" {
				t.Error("the peer sets cookies here")
			}
		})
	}
}
