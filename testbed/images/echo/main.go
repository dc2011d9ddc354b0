// SPDX-License-Identifier: Apache-2.0

// Command echo is an HTTP server that tells where it runs and what it was asked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Answer is what the server answers to any request.
type Answer struct {
	Hostname  string            `json:"hostname"`
	Pod       string            `json:"pod,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Node      string            `json:"node,omitempty"`
	Cluster   string            `json:"cluster,omitempty"`
	Addresses []string          `json:"addresses"`
	Env       map[string]string `json:"env"`
	Request   Request           `json:"request"`
}

// Request is what the server was asked.
type Request struct {
	Method  string              `json:"method"`
	Path    string              `json:"path"`
	Query   string              `json:"query,omitempty"`
	Host    string              `json:"host"`
	Client  string              `json:"client"`
	Headers map[string][]string `json:"headers"`
}

const timeout = 2 * time.Second

func main() {
	log.SetFlags(log.LstdFlags | log.LUTC)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	if err := serve(ctx, net.JoinHostPort("", port)); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, address string) error {
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(echo), ReadHeaderTimeout: timeout}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	hostname, _ := os.Hostname()
	log.Printf("echo listens on %s at %s", address, hostname) //nolint:gosec // its own name
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Print("echo ends")
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if err := server.Shutdown(end); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func echo(w http.ResponseWriter, r *http.Request) {
	log.Printf("%s %s from %s", r.Method, r.URL.Path, r.RemoteAddr) //nolint:gosec // a test server that shows what it is asked
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(answer(r)); err != nil {
		log.Printf("answer %s: %v", r.RemoteAddr, err) //nolint:gosec // a test server that shows what it is asked
	}
}

func answer(r *http.Request) Answer {
	hostname, _ := os.Hostname()
	env := map[string]string{}
	for _, variable := range os.Environ() {
		key, value, _ := strings.Cut(variable, "=")
		env[key] = value
	}
	return Answer{
		Hostname:  hostname,
		Pod:       os.Getenv("POD_NAME"),
		Namespace: os.Getenv("POD_NAMESPACE"),
		Node:      os.Getenv("NODE_NAME"),
		Cluster:   os.Getenv("CLUSTER_NAME"),
		Addresses: addresses(),
		Env:       env,
		Request: Request{
			Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Host: r.Host, Client: r.RemoteAddr, Headers: r.Header,
		},
	}
}

// addresses are the server's own, without the loopback interface's.
func addresses() []string {
	found := []string{}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return found
	}
	for _, address := range interfaces {
		if ip, _, err := net.ParseCIDR(address.String()); err == nil && !ip.IsLoopback() {
			found = append(found, ip.String())
		}
	}
	slices.Sort(found)
	return found
}
