// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// ask sends a request to the server as a cluster would that has its address, and returns the body of the answer.
func ask(ctx context.Context, t *testing.T, s *Server, method, path string) (io.Reader, error) {
	t.Helper()
	address := s.Address()
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(address.CertificateAuthorityData)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: address.TLSServerName}}
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(ctx, method, address.Server+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.Body, nil
}

func answer(t *testing.T, s *Server, method, path string) io.Reader {
	t.Helper()
	body, err := ask(t.Context(), t, s, method, path)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func started(t *testing.T) *Server {
	t.Helper()
	honest := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the truth") }))
	t.Cleanup(honest.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: honest.Certificate().Raw})
	front, err := InFrontOf(&rest.Config{Host: honest.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		t.Fatal(err)
	}
	return startedBefore(t, front)
}

func startedBefore(t *testing.T, honest http.Handler) *Server {
	t.Helper()
	s, err := Start(t.Context(), "127.0.0.1", honest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestServerAnswersHonestlyWhatItHasNoLieFor(t *testing.T) {
	s := started(t)
	for _, lie := range []Lie{nil, Expires("shadowpods"), SlowWrites(time.Hour)} {
		s.Tell(lie)
		said, err := io.ReadAll(answer(t, s, http.MethodGet, "/apis/hanse.dev/v1alpha1/peers"))
		if err != nil || string(said) != "the truth" {
			t.Errorf("it says %q, %v", said, err)
		}
	}
}

func TestLies(t *testing.T) {
	invent := func(int, int) any { return map[string]any{"kind": "ShadowPod", "padding": strings.Repeat("x", 10_000)} }
	for name, test := range map[string]struct {
		lie   Lie
		path  string
		want  string
		lines int
	}{
		"floods":            {Floods("shadowpods", 3, 0, invent), "/shadowpods?watch=1", `"type":"MODIFIED"`, 20},
		"expires":           {Expires("shadowpods"), "/shadowpods?watch=1", `"code":410`, 1},
		"lists without end": {ListsWithoutEnd("shadowpods", page(2, 10)), "/shadowpods?limit=5", `"continue":"page-1"`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t)
			s.Tell(test.lie)
			body := bufio.NewReader(answer(t, s, http.MethodGet, test.path))
			said := ""
			for range test.lines {
				line, err := body.ReadString('\n')
				if said += line; err != nil && (err != io.EOF || test.lines > 1) {
					t.Fatal(err)
				}
			}
			if !strings.Contains(said, test.want) {
				t.Errorf("it says %.200s", said)
			}
		})
	}
}

func TestServerHoldsWritesUp(t *testing.T) {
	s := started(t)
	const hang = 50 * time.Millisecond
	s.Tell(SlowWrites(hang))
	start := time.Now()
	answer(t, s, http.MethodPost, "/shadowpods")
	if took := time.Since(start); took < hang {
		t.Errorf("a write took %v, although it should hang for %v", took, hang)
	}
}

// scene is what attacks of tests are about.
func scene() Scene {
	return Scene{
		Record:  &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "twin", Name: "shop", UID: "1"}},
		Mapping: &v1alpha1.NamespaceMapping{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "home"}},
	}
}

func TestEachAttackAnswersSomethingElse(t *testing.T) {
	attacks, err := Attacks(scene())
	if err != nil {
		t.Fatal(err)
	}
	for _, attack := range attacks {
		t.Run(attack.Name, func(t *testing.T) {
			if attack.Certificate == nil && attack.Lie == nil {
				t.Error("there is no attack")
			}
			s := started(t)
			s.Begin(attack)
			expectAttacked(t, s, attack)
			s.End()
			if said, err := io.ReadAll(answer(t, s, http.MethodGet, "/version")); err != nil || string(said) != "the truth" {
				t.Errorf("after the attack it says %q, %v", said, err)
			}
		})
	}
}

// expectAttacked expects an answer of those attacks alone that give one.
func expectAttacked(t *testing.T, s *Server, attack Attack) {
	t.Helper()
	limit, silent := time.Minute, attack.Name == "answers that do not come"
	if silent {
		limit = 100 * time.Millisecond
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	_, err := ask(ctx, t, s, http.MethodGet, "/version")
	if answered := !silent && attack.Certificate == nil; answered != (err == nil) {
		t.Errorf("the answer is %v", err)
	}
}

func TestProviderShowsWhatItHas(t *testing.T) {
	honest := NewProvider()
	s := startedBefore(t, honest)
	put := func(name string) {
		t.Helper()
		if err := honest.Put("shadowpods", &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "twin", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	put("second")
	listed, err := io.ReadAll(answer(t, s, http.MethodGet, "/namespaces/twin/shadowpods?fieldSelector=metadata.name=second"))
	if err != nil || !strings.Contains(string(listed), `"second"`) || strings.Contains(string(listed), `"first"`) {
		t.Errorf("the list is %s, %v", listed, err)
	}
	watched := bufio.NewReader(answer(t, s, http.MethodGet, "/namespaces/twin/shadowpods?watch=1&resourceVersion=2"))
	put("third")
	if line, err := watched.ReadString('\n'); err != nil || !strings.Contains(line, `"third"`) {
		t.Errorf("the event is %s, %v", line, err)
	}
	if s.MostWatches() != 1 || s.Requests() != 2 {
		t.Errorf("it counts %d watches, %d requests", s.MostWatches(), s.Requests())
	}
}
