// SPDX-License-Identifier: Apache-2.0

// Orders is a small application of four tiers, to be spread over clusters: web pages, an API, a cache and a database. One program
// has all of them, and a load that counts what fails.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// parts are what the program can be, by the first argument. Each runs until the context ends.
var parts = map[string]func(ctx context.Context, args []string) error{
	"web": web, "api": api, "cache": cache, "database": database, "load": load, "get": get,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go renewConnections()
	if err := run(ctx, os.Args[1:]); err != nil {
		slog.Error("Stopping", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && parts[args[0]] != nil {
		return parts[args[0]](ctx, args[1:])
	}
	names := make([]string, 0, len(parts))
	for name := range parts {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("usage: orders %s", strings.Join(names, "|"))
}

// get prints what is at a URL: the image has no other program that could.
func get(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: orders get URL")
	}
	body, err := fetch(ctx, http.MethodGet, args[0])
	if err == nil {
		_, err = os.Stdout.Write(body)
	}
	return err
}

var client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 10}}

// renewConnections has requests go to pods that are behind the Service at that time: a connection stays with one pod for as long as it
// lives.
func renewConnections() {
	for range time.Tick(time.Second) {
		client.CloseIdleConnections()
	}
}

// fetch returns the answer to a request, and an error if the status is none of success.
func fetch(ctx context.Context, method, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, nil) //nolint:gosec // flags say whom to ask
	if err != nil {
		return nil, err
	}
	request.Header.Set("Idempotency-Key", url) // a request whose connection ends before there is an answer may be sent again
	response, err := client.Do(request)        //nolint:gosec // the same
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.200s", method, url, response.Status, body)
	}
	return body, err
}
