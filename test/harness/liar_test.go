package harness

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// ask sends a request to the liar as a cluster would that has its address, and returns the body of the answer.
func ask(t *testing.T, l *Liar, method, path string) io.Reader {
	t.Helper()
	address := l.Address()
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(address.CertificateAuthorityData)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: address.TLSServerName}}
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), method, address.Server+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.Body
}

func startedLiar(t *testing.T) *Liar {
	t.Helper()
	honest := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the truth") }))
	t.Cleanup(honest.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: honest.Certificate().Raw})
	behind := &Cluster{Config: &rest.Config{Host: honest.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}}
	l, err := StartLiar(t.Context(), behind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestLiarPassesOnWhatItHasNoLieFor(t *testing.T) {
	l := startedLiar(t)
	for _, lie := range []Lie{nil, Expires("shadowpods"), SlowWrites(time.Hour)} {
		l.Tell(lie)
		answer, err := io.ReadAll(ask(t, l, http.MethodGet, "/apis/hanse.dev/v1alpha1/peers"))
		if err != nil || string(answer) != "the truth" {
			t.Errorf("it says %q, %v", answer, err)
		}
	}
}

func TestLiarLies(t *testing.T) {
	invent := func(int, int) any { return map[string]any{"kind": "ShadowPod", "padding": strings.Repeat("x", 10_000)} }
	for name, test := range map[string]struct {
		lie   Lie
		path  string
		want  string
		lines int
	}{
		"floods":            {Floods("shadowpods", 3, 0, invent), "/shadowpods?watch=1", `"type":"MODIFIED"`, 10},
		"expires":           {Expires("shadowpods"), "/shadowpods?watch=1", `"code":410`, 1},
		"lists without end": {ListsWithoutEnd("shadowpods", func(int) []any { return nil }), "/shadowpods?limit=5", `"continue":"page-1"`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := startedLiar(t)
			l.Tell(test.lie)
			body := bufio.NewReader(ask(t, l, http.MethodGet, test.path))
			line := ""
			for range test.lines {
				var err error
				if line, err = body.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			if !strings.Contains(line, test.want) {
				t.Errorf("it says %.200s", line)
			}
		})
	}
}

func TestLiarHoldsWritesUp(t *testing.T) {
	l := startedLiar(t)
	const hang = 50 * time.Millisecond
	l.Tell(SlowWrites(hang))
	start := time.Now()
	ask(t, l, http.MethodPost, "/shadowpods")
	if took := time.Since(start); took < hang {
		t.Errorf("a write took %v, although it should hang for %v", took, hang)
	}
}
