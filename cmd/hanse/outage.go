package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// answerTimeout is how long the API server may take to say that it is there.
	answerTimeout = 5 * time.Second
	// leaseLost is the text of the error of controller-runtime, which has no value for it, when the lease was lost.
	leaseLost = "leader election lost"
)

// outlive runs a server for as long as it is wanted, also when the API server goes away. The lease is lost then, and with
// it the right to act, so the process begins anew, in place. Were it to end, Kubernetes would start it again with a pause
// that grows with every outage to five minutes.
func (f *serverFlags) outlive(ctx context.Context, run func(context.Context) error) error {
	if err := errors.Join(f.setLogger(), f.faults.arm()); err != nil {
		return err
	}
	config, err := f.restConfig()
	if err != nil {
		return err
	}
	if err := f.awaitAPIServer(ctx, config); err != nil {
		return err
	}
	err = run(ctx)
	if err == nil || ctx.Err() != nil || err.Error() != leaseLost && answers(ctx, config) == nil {
		return err
	}
	ctrl.Log.Info("The API server was away; starting anew", "cause", err.Error())
	return startAnew()
}

// startAnew makes this process one that has just been started. It returns only if that fails.
func startAnew() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own program: %w", err)
	}
	return fmt.Errorf("start anew: %w", syscall.Exec(program, os.Args, os.Environ())) //nolint:gosec // it is this very program
}

// awaitAPIServer returns when the API server answers. Meanwhile the process is healthy, but not ready.
func (f *serverFlags) awaitAPIServer(ctx context.Context, config *rest.Config) error {
	if answers(ctx, config) == nil {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.health)
	if err != nil {
		return fmt.Errorf("serve --health-probe-bind-address: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(aliveOnly), ReadHeaderTimeout: answerTimeout}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // says that it was closed
	}()
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		if err := answers(ctx, config); err != nil {
			ctrl.Log.Info("Waiting for the API server", "cause", err.Error())
			return false, nil
		}
		return true, nil
	})
	err = errors.Join(err, server.Close())
	<-served
	return err
}

func aliveOnly(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path != "/healthz" {
		http.Error(w, "the API server does not answer", http.StatusServiceUnavailable)
	}
}

// answers asks the API server whether it is there. Any answer that is not its own failure is one.
func answers(ctx context.Context, config *rest.Config) error {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("readyz").String(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is read of it
	if response.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}
