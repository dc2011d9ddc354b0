// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	clientremote "k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// clientConfig is what a client of the kubelet API has.
func (w *apiWorld) clientConfig() *rest.Config {
	return &rest.Config{Host: "https://" + w.address, BearerToken: "theirs", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// executors are the clients that kubectl has.
func (w *apiWorld) executors(path string) map[string]clientremote.Executor {
	w.Helper()
	address, err := url.Parse("https://" + w.address + path)
	if err != nil {
		w.Fatal(err)
	}
	old, err := clientremote.NewSPDYExecutor(w.clientConfig(), http.MethodPost, address)
	if err != nil {
		w.Fatal(err)
	}
	now, err := clientremote.NewWebSocketExecutor(w.clientConfig(), http.MethodGet, address.String())
	if err != nil {
		w.Fatal(err)
	}
	return map[string]clientremote.Executor{"SPDY": old, "WebSocket": now}
}

func (w *apiWorld) context() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), 2*time.Minute)
	w.Cleanup(cancel)
	return ctx
}

func TestCommandsRunInTheRemotePod(t *testing.T) {
	w := newAPIWorld(t, newRuntimeStub(t).ServeHTTP)
	archive := make([]byte, 3<<20) // what kubectl cp sends
	_, _ = rand.Read(archive)
	for name, tc := range map[string]struct {
		path     string
		stdin    []byte
		tty      bool
		wantOut  string
		wantErr  string
		wantCode int
	}{
		"both outputs, apart":  {path: "/exec/shop/web-1/web?command=both&output=1&error=1", wantOut: "out", wantErr: "err"},
		"input of any size":    {path: "/exec/shop/web-1/web?command=cat&input=1&output=1", stdin: archive, wantOut: string(archive)},
		"an exit code":         {path: "/exec/shop/web-1/web?command=exit&command=42&output=1&error=1", wantCode: 42},
		"a terminal's size":    {path: "/exec/shop/web-1/web?command=size&output=1&tty=1", tty: true, wantOut: "132x43"},
		"what runs already":    {path: "/attach/shop/web-1/web?input=1&output=1", stdin: []byte("hello"), wantOut: "hello"},
		"a debugger's process": {path: "/attach/shop/web-1/debugger-x?input=1&output=1", stdin: []byte("ps"), wantOut: "ps"},
	} {
		for client, executor := range w.executors(tc.path) {
			t.Run(name+" by "+client, func(t *testing.T) {
				var out, errOut bytes.Buffer
				options := clientremote.StreamOptions{Stdout: &out, Tty: tc.tty}
				if tc.tty {
					options.TerminalSizeQueue = &oneSize{}
				}
				if tc.stdin != nil {
					options.Stdin = bytes.NewReader(tc.stdin)
				}
				if strings.Contains(tc.path, "error=1") {
					options.Stderr = &errOut
				}
				if code, err := exitCode(executor.StreamWithContext(w.context(), options)); err != nil || code != tc.wantCode {
					t.Fatalf("ended with code %d, %v", code, err)
				}
				if sha256.Sum256(out.Bytes()) != sha256.Sum256([]byte(tc.wantOut)) {
					t.Errorf("%d bytes of output, want %d: %.20q", out.Len(), len(tc.wantOut), out.String())
				}
				if errOut.String() != tc.wantErr {
					t.Errorf("error output %q", errOut.String())
				}
			})
		}
	}
}

// exitCode returns the code of a command that ended, or why there is none.
func exitCode(err error) (int, error) {
	var exited exec.CodeExitError
	if errors.As(err, &exited) {
		return exited.Code, nil
	}
	return 0, err
}

// oneSize is a terminal that has one size.
type oneSize struct{ told bool }

// Next implements remotecommand.TerminalSizeQueue.
func (s *oneSize) Next() *clientremote.TerminalSize {
	if s.told {
		return nil
	}
	s.told = true
	return &clientremote.TerminalSize{Width: 132, Height: 43}
}

func TestStreamEndsAtThePeerWithItsClient(t *testing.T) {
	stub := newRuntimeStub(t)
	w := newAPIWorld(t, stub.ServeHTTP)
	for name, executor := range w.executors("/exec/shop/web-1/web?command=hang&output=1") {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(w.context())
			started := notifying{make(chan struct{}, 1)}
			done := make(chan error, 1)
			go func() { done <- executor.StreamWithContext(ctx, clientremote.StreamOptions{Stdout: started}) }()
			<-started.written
			leave()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			w.expect(stub.ended, "exec")
		})
	}
}

// notifying is a writer that says that something was written.
type notifying struct{ written chan struct{} }

// Write implements io.Writer.
func (n notifying) Write(p []byte) (int, error) {
	select {
	case n.written <- struct{}{}:
	default:
	}
	return len(p), nil
}

// expect waits for the word.
func (w *apiWorld) expect(from <-chan string, want string) {
	w.Helper()
	select {
	case got := <-from:
		if got != want {
			w.Errorf("got %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		w.Fatalf("no %q", want)
	}
}

func TestClientThatReadsNothingIsCutOff(t *testing.T) {
	stub := newRuntimeStub(t)
	w := newAPIWorldWith(t, stub.ServeHTTP, 200*time.Millisecond)
	for name, executor := range w.executors("/exec/shop/web-1/web?command=yes&output=1") {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(w.context())
			blocked := blocking{make(chan struct{})}
			done := make(chan error, 1)
			go func() { done <- executor.StreamWithContext(ctx, clientremote.StreamOptions{Stdout: blocked}) }()
			w.expect(stub.ended, "exec") // though the client is still there
			leave()
			close(blocked.until)
			if err := <-done; err == nil {
				t.Error("ended well")
			}
		})
	}
}

// blocking is a writer that takes nothing.
type blocking struct{ until chan struct{} }

// Write implements io.Writer.
func (b blocking) Write(p []byte) (int, error) {
	<-b.until
	return len(p), nil
}

func TestPortsAreForwarded(t *testing.T) {
	stub := newRuntimeStub(t)
	w := newAPIWorld(t, stub.ServeHTTP)
	address, err := url.Parse("https://" + w.address + "/portForward/shop/web-1")
	if err != nil {
		t.Fatal(err)
	}
	roundTripper, upgrader, err := spdy.RoundTripperFor(w.clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, w.clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]httpstream.Dialer{
		"SPDY":      spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, address),
		"WebSocket": tunnel,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(w.context())
			ready, done := make(chan struct{}), make(chan error, 1)
			forwarder, err := portforward.NewOnAddressesForStreamingWithContext(
				ctx, dialer, []string{"127.0.0.1"}, []string{"0:80"}, ready, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			go func() { done <- forwarder.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatal(err)
			}
			ports, err := forwarder.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if got := askPort(t, ports[0].Local, fmt.Sprintf("hello %d", i)); got != fmt.Sprintf("HELLO %d at 80", i) {
					t.Errorf("answer %q", got)
				}
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			w.expect(stub.ended, "portforward")
		})
	}
}

// askPort says something to a local port, and returns what it answers.
func askPort(t *testing.T, port uint16, text string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // test
	say(conn, text)
	_ = conn.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestStreamsAreBounded(t *testing.T) {
	w := newAPIWorld(t, newRuntimeStub(t).ServeHTTP)
	node := w.api.nodes[turinNode]
	for _, tc := range []struct {
		ofNode, ofAll int32
		want          int
	}{
		{maxNodeStreams, maxNodeStreams, http.StatusTooManyRequests},
		{0, maxStreams, http.StatusServiceUnavailable},
		{maxNodeStreams - 1, maxStreams - 1, http.StatusNotFound},
	} {
		node.streams.Store(tc.ofNode)
		w.api.streams.Store(tc.ofAll)
		if status, body := w.get("/containerLogs/shop/nobody/web"); status != tc.want {
			t.Errorf("%d streams of the node, %d of all: status %d: %s", tc.ofNode, tc.ofAll, status, body)
		}
		if node.streams.Load() != tc.ofNode || w.api.streams.Load() != tc.ofAll {
			t.Errorf("%d and %d streams are counted", node.streams.Load(), w.api.streams.Load())
		}
	}
}

// debugged is a pod that a debugger was added to.
func debugged(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger-x", Image: "registry.example/tools:1"},
	}}
	return pod
}
