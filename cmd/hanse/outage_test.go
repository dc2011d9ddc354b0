// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// lostLock is a lease that can be taken, and not be kept.
type lostLock struct{ taken atomic.Bool }

func (l *lostLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.taken.Load() {
		return nil, nil, errors.New("the API server is away")
	}
	return &resourcelock.LeaderElectionRecord{}, nil, nil
}

func (l *lostLock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return errors.New("it is there")
}

func (l *lostLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	if l.taken.Swap(true) {
		return errors.New("the API server is away")
	}
	return nil
}

func (l *lostLock) RecordEvent(string) {}
func (l *lostLock) Identity() string   { return "us" }
func (l *lostLock) Describe() string   { return "lost" }

// The text is controller-runtime's, and without it an outage of the API server would end the process.
func TestLeaseLostIsRecognised(t *testing.T) {
	lease, renew, retry := 300*time.Millisecond, 200*time.Millisecond, 50*time.Millisecond
	mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{
		Scheme: runtime.NewScheme(), LeaderElection: true, LeaderElectionResourceLockInterface: &lostLock{},
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Start(t.Context()); err == nil || err.Error() != leaseLost {
		t.Errorf("got %v, want %q", err, leaseLost)
	}
}

func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		status int
		want   bool
	}{
		{http.StatusOK, true},
		{http.StatusUnauthorized, true}, // a fault of ours, which waiting does not repair
		{http.StatusForbidden, true},
		{http.StatusInternalServerError, false}, // not ready yet
		{http.StatusBadGateway, false},
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.status) }))
		flags := &serverFlags{config: &rest.Config{Host: api.URL}}
		if err := flags.answers(t.Context()); (err == nil) != test.want {
			t.Errorf("%d: got %v", test.status, err)
		}
		api.Close()
	}
	if (&serverFlags{config: &rest.Config{Host: "http://127.0.0.1:1"}}).answers(t.Context()) == nil {
		t.Error("nobody answered")
	}
}

func TestAwaitAPIServerIsAliveButNotReady(t *testing.T) {
	var up atomic.Bool
	waiting := make(chan struct{}, 1)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			select {
			case waiting <- struct{}{}:
			default:
			}
		}
	}))
	defer api.Close()
	done := make(chan error, 1)
	flags := &serverFlags{health: "127.0.0.1:0", config: &rest.Config{Host: api.URL}}
	go func() { done <- flags.await(t.Context(), "the API server", flags.answers) }()
	<-waiting
	up.Store(true)
	if err := <-done; err != nil {
		t.Error(err)
	}

	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		response := httptest.NewRecorder()
		aliveOnly(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if response.Code != want {
			t.Errorf("%s: got %d, want %d", path, response.Code, want)
		}
	}
}

// A kubelet or discovery that starts before the manager would otherwise do without the id for ever.
func TestClusterIDWaitsForTheManager(t *testing.T) {
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
		case 2:
			_, _ = io.WriteString(w, `{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "hanse-cluster"}}`)
		default:
			if want := "/api/v1/namespaces/hanse/configmaps/hanse-cluster"; request.URL.Path != want {
				t.Errorf("%s was read, want %s", request.URL.Path, want)
			}
			_, _ = io.WriteString(w, `{"kind": "ConfigMap", "apiVersion": "v1", "data": {"clusterID": "lubeck"}}`)
		}
	}))
	defer api.Close()
	flags := &serverFlags{namespace: "hanse", health: "127.0.0.1:0", config: &rest.Config{Host: api.URL}}
	if id, err := flags.clusterID(t.Context()); err != nil || id != "lubeck" {
		t.Errorf("got %q, %v", id, err)
	}
}
