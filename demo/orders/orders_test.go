// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	drainTime = time.Second
	os.Exit(m.Run())
}

// A shop is the whole application in this process, but for the pages.
type shop struct {
	folder   string
	database string
	store    *store
	api      *httptest.Server
}

func newShop(t *testing.T) *shop {
	t.Helper()
	folder := t.TempDir()
	s := &shop{folder: folder}
	s.write(t, "greeting", "Moin")
	s.write(t, "credentials", "first:one\n")
	cacheAt := s.start(t, cache)
	s.database = s.start(t, database, "--file", filepath.Join(folder, "orders.db"))
	file := credentialFile(filepath.Join(folder, "credentials"))
	s.store = &store{openDatabase(s.database, file), openCache(cacheAt, file), filepath.Join(folder, "greeting"), file}
	t.Cleanup(func() { _, _ = s.store.db.Close(), s.store.cache.Close() })
	s.api = httptest.NewServer(s.store.handler())
	t.Cleanup(s.api.Close)
	return s
}

func (s *shop) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start runs a part until the test's end, and returns where it listens.
func (s *shop) start(t *testing.T, part func(context.Context, []string) error, args ...string) string {
	t.Helper()
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- part(ctx, append(args, "--listen", address, "--credentials", filepath.Join(s.folder, "credentials")))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	until(t, address+" listens", func() bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return address
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("never: " + what)
		}
	}
}

func (s *shop) summary(t *testing.T) (got summary) {
	t.Helper()
	body, err := fetch(t.Context(), http.MethodGet, s.api.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	got.API = ""
	return got
}

func (s *shop) order(t *testing.T, client string) {
	t.Helper()
	if _, err := fetch(t.Context(), http.MethodPost, s.api.URL+"/orders?number=7&client="+client); err != nil {
		t.Fatal(err)
	}
}

func TestOrdersAreKeptOnce(t *testing.T) {
	s := newShop(t)
	s.order(t, "o'hara")
	s.order(t, "o'hara")
	s.order(t, "smith")
	until(t, "the cache tells of both orders", func() bool {
		return cmp.Equal(s.summary(t), summary{Greeting: "Moin", Orders: 2, User: "first"})
	})
	cached, err := s.store.cache.Get(t.Context(), "orders").Int()
	if err != nil || cached != 2 {
		t.Errorf("the cache has %d orders (%v)", cached, err)
	}
	body, err := fetch(t.Context(), http.MethodGet, s.api.URL+"/orders?client=o%27hara")
	if got := strings.TrimSpace(string(body)); err != nil || got != "[7]" {
		t.Errorf("orders: %s (%v)", got, err)
	}
	if _, err := fetch(t.Context(), http.MethodPost, s.api.URL+"/orders?client=smith"); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("an order without a number: %v", err)
	}
}

// A new credential is put before the old one; then the old one goes.
func TestCredentialsRotate(t *testing.T) {
	s := newShop(t)
	s.order(t, "smith")
	s.write(t, "credentials", "second:two\nfirst:one\n")
	s.order(t, "miller")
	if got := s.summary(t).User; got != "second" {
		t.Errorf("the user is %s", got)
	}
	old := filepath.Join(s.folder, "old")
	if err := os.WriteFile(old, []byte("first:one"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := openDatabase(s.database, credentialFile(old))
	defer func() { _ = db.Close() }()
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the old credential is refused too soon: %v", err)
	}
	s.write(t, "credentials", "second:two\n")
	another := openDatabase(s.database, credentialFile(old))
	defer func() { _ = another.Close() }()
	if err := another.PingContext(t.Context()); err == nil {
		t.Error("the old credential is taken")
	}
	until(t, "the cache refuses the old credential", func() bool {
		late := openCache(s.store.cache.Options().Addr, credentialFile(old))
		defer func() { _ = late.Close() }()
		return late.Ping(t.Context()).Err() != nil
	})
	fresh := openCache(s.store.cache.Options().Addr, s.store.credentials)
	defer func() { _ = fresh.Close() }()
	if err := fresh.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the cache refuses the new credential: %v", err)
	}
}

func TestAFileOfCredentials(t *testing.T) {
	for text, want := range map[string][]credential{
		"a:b":            {{"a", "b"}},
		"a:b\n\nc:d:e\n": {{"a", "b"}, {"c", "d:e"}},
		"":               nil,
		"a:b\nno colon":  nil,
		":b":             nil,
	} {
		file := filepath.Join(t.TempDir(), "credentials")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := credentialFile(file).read()
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(credential{})); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
}

// A pod that ends is not ready, and answers yet.
func TestReadinessEndsBeforeWork(t *testing.T) {
	s := &shop{folder: t.TempDir()}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address := s.start(t, func(_ context.Context, args []string) error {
		return serve(ctx, args[1], http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	})
	if _, err := fetch(t.Context(), http.MethodGet, "http://"+address+"/ready"); err != nil {
		t.Error(err)
	}
	stop()
	until(t, "not ready", func() bool {
		_, err := fetch(t.Context(), http.MethodGet, "http://"+address+"/ready")
		return err != nil && strings.Contains(err.Error(), "503")
	})
	if _, err := fetch(t.Context(), http.MethodGet, "http://"+address+"/"); err != nil {
		t.Error(err)
	}
}
