// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
)

// apiWorld is a kubelet API before a provider whose API server is a stub.
type apiWorld struct {
	*world
	api     *apiServer
	address string
	client  *http.Client
	asked   chan *http.Request // what reached the provider
	may     func(authorizer.Attributes) bool
}

func newAPIWorld(t *testing.T, provider http.HandlerFunc) *apiWorld {
	t.Helper()
	return newAPIWorldWith(t, provider, stallLimit)
}

// testCertificate is made once, since that takes its time.
var testCertificate = sync.OnceValues(func() (certificateSource, error) {
	return selfSigned(Config{NodeIP: netip.MustParseAddr("127.0.0.1")})
})

// newAPIWorldWith makes one that gives up clients that take nothing for so long.
func newAPIWorldWith(t *testing.T, provider http.HandlerFunc, stall time.Duration) *apiWorld {
	t.Helper()
	pod := debugged(podCalled("web-1"))
	w := &apiWorld{
		world: offloaded(t, pod, func() *corev1.Pod { p := podCalled("elsewhere"); p.Spec.NodeName = "hanse-milan"; return p }(),
			podCalled("pending")),
		asked: make(chan *http.Request, 10),
		may:   func(authorizer.Attributes) bool { return true },
	}
	w.put(w.Away, shadowOf(pod))
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		select {
		case w.asked <- r:
		default: // nobody looks at so many
		}
		provider(rw, r)
	}))
	*w.turin.REST = rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	httpClient, err := rest.HTTPClientFor(w.turin.REST)
	if err != nil {
		t.Fatal(err)
	}
	*w.turin.HTTP = *httpClient
	certificate, err := testCertificate()
	if err != nil {
		t.Fatal(err)
	}
	first := freePorts(t, 2)
	api := portsOf(first, first+1)
	api.reader, api.live, api.links, api.certificate, api.clock, api.stall = w.Home.Client, w.Home.Client, w.links, certificate, w.Clock, stall
	api.access = access{
		authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name, known := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, known, nil
		}),
		authorizer: authorizerFunc(func(a authorizer.Attributes) bool { return w.may(a) }),
	}
	w.api = api
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	at, err := api.Open(ctx, turinNode, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		if err := api.Start(ctx); err != nil {
			t.Errorf("kubelet API: %v", err)
		}
	}()
	w.address = fmt.Sprintf("127.0.0.1:%d", at.port)
	w.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(func() {
		cancel()
		<-done
		w.client.CloseIdleConnections()
		httpClient.CloseIdleConnections()
		server.Close()
	})
	return w
}

type authorizerFunc func(authorizer.Attributes) bool

func (f authorizerFunc) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if f(a) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule", nil
}

// get asks as the cluster's API server would.
func (w *apiWorld) get(path string) (int, string) {
	w.Helper()
	resp, err := w.client.Do(w.request(http.MethodGet, path))
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // test
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (w *apiWorld) request(method, path string) *http.Request {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), method, "https://"+w.address+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer theirs")
	return req
}

func TestLogsComeFromTheRemotePod(t *testing.T) {
	w := newAPIWorld(t, func(rw http.ResponseWriter, _ *http.Request) { say(rw, "hello") })
	status, body := w.get("/containerLogs/shop/web-1/web?tailLines=5&timestamps=true&insecureSkipTLSVerifyBackend=true")
	if status != http.StatusOK || body != "hello" {
		t.Fatalf("status %d, body %q", status, body)
	}
	asked := <-w.asked
	if want := "/api/v1/namespaces/" + twinName + "/pods/web-1/log"; asked.URL.Path != want {
		t.Errorf("asked for %s", asked.URL.Path)
	}
	want := map[string][]string{"tailLines": {"5"}, "timestamps": {"true"}, "container": {"web"}}
	if diff := cmp.Diff(want, map[string][]string(asked.URL.Query())); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
	if got := asked.Header.Get("Authorization"); got != "Bearer ours" {
		t.Errorf("asked as %q", got)
	}
}

func TestLogThatIsFollowedComesLineByLine(t *testing.T) {
	more := make(chan struct{})
	w := newAPIWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		say(rw, "first\n")
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-more:
			say(rw, "second\n")
		case <-r.Context().Done():
		}
	})
	resp, err := w.client.Do(w.request(http.MethodGet, "/containerLogs/shop/web-1/web?follow=true"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // test
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	close(more)
	if line, err := lines.ReadString('\n'); err != nil || line != "second\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestAnswerOfThePeerIsPassedOn(t *testing.T) {
	w := newAPIWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, "container web is waiting to start", http.StatusBadRequest)
	})
	status, body := w.get("/containerLogs/shop/web-1/web")
	if status != http.StatusBadRequest || !strings.Contains(body, "waiting to start") {
		t.Errorf("status %d, body %q", status, body)
	}
}

func TestWhatIsNotServed(t *testing.T) {
	w := newAPIWorld(t, func(http.ResponseWriter, *http.Request) {})
	for name, tc := range map[string]struct {
		path string
		want int
	}{
		"a pod that does not exist":        {"/containerLogs/shop/nobody/web", http.StatusNotFound},
		"a pod of another node":            {"/containerLogs/shop/elsewhere/web", http.StatusNotFound},
		"a pod that is not out yet":        {"/containerLogs/shop/pending/web", http.StatusNotFound},
		"what a kubelet has and we do not": {"/metrics/cadvisor", http.StatusNotFound},
		"metrics of the process":           {"/metrics", http.StatusNotFound},
		"a container that home has not":    {"/containerLogs/shop/web-1/sidecar-of-theirs", http.StatusNotFound},
		"a stream that is no upgrade":      {"/exec/shop/web-1/web?command=ls&output=1", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if status, body := w.get(tc.path); status != tc.want {
				t.Errorf("status %d: %s", status, body)
			}
		})
	}
	if len(w.asked) != 0 {
		t.Errorf("the provider was asked for %s", (<-w.asked).URL)
	}
}

func TestWhatIsNotKnownYetIsNoMissingPod(t *testing.T) {
	w := newAPIWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.silence()
	status, body := w.get("/containerLogs/shop/web-1/web")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "try again") {
		t.Errorf("status %d: %s", status, body)
	}
}

func TestWhoIsServed(t *testing.T) {
	w := newAPIWorld(t, func(http.ResponseWriter, *http.Request) {})
	var asked authorizer.Attributes
	w.may = func(a authorizer.Attributes) bool { asked = a; return a.GetVerb() == "get" }

	t.Run("nobody is anonymous", func(t *testing.T) {
		req := w.request(http.MethodGet, "/containerLogs/shop/web-1/web")
		req.Header.Del("Authorization")
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	t.Run("who may get the proxy of the node reads logs", func(t *testing.T) {
		if status, body := w.get("/containerLogs/shop/web-1/web"); status != http.StatusOK {
			t.Errorf("status %d: %s", status, body)
		}
		if asked.GetResource() != "nodes" || asked.GetSubresource() != "proxy" || asked.GetName() != turinNode ||
			asked.GetUser().GetName() != "theirs" {
			t.Errorf("asked about %+v", asked)
		}
	})
	t.Run("but runs nothing, also by a request that begins with GET", func(t *testing.T) {
		if status, _ := w.get("/exec/shop/web-1/web?command=ls&output=1"); status != http.StatusForbidden {
			t.Errorf("status %d", status)
		}
	})
}

func TestStreamsAreJoined(t *testing.T) {
	for name, tc := range map[string]struct {
		path      string
		wantPath  string
		wantQuery map[string][]string
	}{
		"exec": {
			"/exec/shop/web-1/web?command=sh&command=-c&input=1&output=1&tty=1&other=x", "/exec",
			map[string][]string{"command": {"sh", "-c"}, "stdin": {"1"}, "stdout": {"1"}, "tty": {"1"}, "container": {"web"}},
		},
		"attach": {
			"/attach/shop/web-1/web?output=1&error=1", "/attach",
			map[string][]string{"stdout": {"1"}, "stderr": {"1"}, "container": {"web"}},
		},
		"port-forward": {"/portForward/shop/web-1?port=80", "/portforward", map[string][]string{"ports": {"80"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAPIWorld(t, echo)
			conn := w.upgrade(tc.path)
			say(conn, "ping\n")
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || line != "echo ping\n" {
				t.Errorf("%q, %v", line, err)
			}
			asked := <-w.asked
			if want := "/api/v1/namespaces/" + twinName + "/pods/web-1" + tc.wantPath; asked.URL.Path != want {
				t.Errorf("asked for %s", asked.URL.Path)
			}
			if diff := cmp.Diff(tc.wantQuery, map[string][]string(asked.URL.Query())); diff != "" {
				t.Errorf("query (-want +got):\n%s", diff)
			}
			want := http.Header{
				"Authorization": {"Bearer ours"}, "Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"},
				"X-Stream-Protocol-Version": {"v4.channel.k8s.io"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"},
				"Content-Length": {"0"},
			}
			if diff := cmp.Diff(want, asked.Header); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStreamsUseTheTokenOfTheMoment(t *testing.T) {
	w := newAPIWorld(t, echo)
	w.upgrade("/exec/shop/web-1/web?command=sh&output=1")
	w.turin.Renew(tenant, "renewed")
	w.reconcileNode()
	w.upgrade("/exec/shop/web-1/web?command=sh&output=1")
	for _, want := range []string{"Bearer ours", "Bearer renewed"} {
		if got := (<-w.asked).Header.Get("Authorization"); got != want {
			t.Errorf("asked with %q, want %q", got, want)
		}
	}
}

// say writes text for the other side, whose test fails when it does not arrive.
func say(to io.Writer, text string) { _, _ = io.WriteString(to, text) }

// echo is a provider that upgrades and says what it hears.
func echo(rw http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // test
	say(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	for {
		line, err := buffered.ReadString('\n')
		if err != nil {
			return
		}
		say(conn, "echo "+line)
	}
}

// upgrade opens a stream.
func (w *apiWorld) upgrade(path string) net.Conn {
	w.Helper()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(w.Context(), "tcp", w.address)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	req := w.request(http.MethodPost, path)
	for key, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io",
		"Sec-Websocket-Protocol": "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
		"Cookie":                 "secret", "X-Forwarded-For": "10.0.0.1", "Impersonate-User": "admin",
	} {
		req.Header.Set(key, value)
	}
	if err := req.Write(conn); err != nil {
		w.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	head := make([]byte, len("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"))
	if _, err := io.ReadFull(conn, head); err != nil || !strings.HasPrefix(string(head), "HTTP/1.1 101") {
		w.Fatalf("%q, %v", head, err)
	}
	return conn
}

func TestStreamsEndWithTheLink(t *testing.T) {
	w := newAPIWorld(t, echo)
	conn := w.upgrade("/exec/shop/web-1/web?command=sh&output=1")
	w.links.Close(turin)
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the stream is open")
	}
}
