// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// drainTime is how long a pod works on after it is not ready any more: others take a while to notice that it is no endpoint.
var drainTime = 5 * time.Second

// serve answers HTTP until the context ends. Then the path /ready fails first, requests are served for some time yet, and those that are
// being served are finished.
func serve(ctx context.Context, address string, handler http.Handler) error {
	var ending atomic.Bool
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if ending.Load() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{
		Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending.Store(true)
	time.Sleep(drainTime)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	err := server.Shutdown(last)
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
