// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// certificate returns a certificate for the host, signed by itself.
func certificate(t *testing.T, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IPAddresses: []net.IP{net.ParseIP(host)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// addServer starts another address of the peer's API server, whose certificate is for the named host.
func (w *world) addServer(address, host string) (*httptest.Server, []byte) {
	w.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", address+":0")
	if err != nil {
		w.t.Fatal(err)
	}
	own := certificate(w.t, host)
	server := &httptest.Server{
		Listener: listener, EnableHTTP2: true, TLS: &tls.Config{Certificates: []tls.Certificate{own}},
		Config: &http.Server{Handler: http.HandlerFunc(w.serve), ReadHeaderTimeout: time.Minute},
	}
	server.StartTLS()
	w.t.Cleanup(server.Close)
	return server, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})
}

// serverAsked tells at which of the addresses a request has arrived.
func (w *world) serverAsked(link *Link) string {
	w.t.Helper()
	at := make(chan string, 1)
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		if req.ProtoMajor != 2 {
			w.t.Errorf("spoke %s", req.Proto)
		}
		at <- "https://" + req.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
		writeJSON(rw, infoWith(nil))
	})
	if _, err := link.ClusterInfo(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return <-at
}

func TestAnotherServerIsTakenWhenOneIsGone(t *testing.T) {
	w := newWorld(t, Config{})
	other, ca := w.addServer("127.0.0.2", "127.0.0.2")
	credentials := w.credentials()
	credentials.Servers = append(credentials.Servers, other.URL)
	credentials.CA = slices.Concat(credentials.CA, ca)
	link := w.join(credentials)

	if at := w.serverAsked(link); at != w.server.URL || link.Server() != w.server.URL {
		t.Errorf("asked %s, in use is %s, want the first of %v", at, link.Server(), credentials.Servers)
	}
	w.server.Close()
	if at := w.serverAsked(link); at != other.URL || link.Server() != other.URL || link.RESTConfig().Host != other.URL {
		t.Errorf("asked %s, in use is %s, for streams %s, want the second of %v",
			at, link.Server(), link.RESTConfig().Host, credentials.Servers)
	}
	other.CloseClientConnections()
	if at := w.serverAsked(link); at != other.URL {
		t.Errorf("asked %s, want the one that worked last", at)
	}
	other.Close()
	if _, err := link.ClusterInfo(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("with no server left: got %v, want %v", err, ErrUnreachable)
	}
}

func TestServerIsTakenOnlyUnderItsOwnName(t *testing.T) {
	tests := map[string]struct {
		host   string // in the server's certificate
		before bool   // whether there is another before it, at 127.0.0.1, which is gone
		behind bool   // whether there is another behind it, which is gone
		want   error
	}{
		"its own":                             {host: "127.0.0.2"},
		"its own, and not the first's":        {host: "127.0.0.2", before: true},
		"another's":                           {host: "127.0.0.3", want: ErrCredentialsInvalid},
		"that of the first":                   {host: "127.0.0.1", before: true, want: ErrUnreachable},
		"another's, and no other one is left": {host: "127.0.0.3", behind: true, want: ErrUnreachable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.server.Close()
			other, ca := w.addServer("127.0.0.2", test.host)
			credentials := w.credentials()
			credentials.Servers, credentials.CA = []string{other.URL}, ca
			if test.before {
				credentials.Servers = []string{w.server.URL, other.URL}
			}
			if test.behind {
				credentials.Servers = []string{other.URL, w.server.URL}
			}
			w.answers(func(rw http.ResponseWriter, _ *http.Request) {
				if test.want != nil {
					t.Error("the token went to a server that does not prove its name")
				}
				writeJSON(rw, infoWith(nil))
			})
			if _, err := w.join(credentials).ClusterInfo(t.Context()); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// A stranger that has the private address of the peer's API server in our own network does not get in the way.
func TestServerWithAForeignCertificateIsPassedOver(t *testing.T) {
	w := newWorld(t, Config{})
	stranger, _ := w.addServer("127.0.0.2", "127.0.0.2")
	credentials := w.credentials()
	credentials.Servers = []string{stranger.URL, w.server.URL}
	if at := w.serverAsked(w.join(credentials)); at != w.server.URL {
		t.Errorf("asked %s", at)
	}
}

func TestServersThatDoNotAnswerTakeNoLongerThanARequest(t *testing.T) {
	w := newWorld(t, Config{Timeout: 2 * time.Second})
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nothing was written
	credentials := w.credentials()
	credentials.Servers = []string{"https://" + silent.Addr().String(), w.server.URL}
	if at := w.serverAsked(w.join(credentials)); at != w.server.URL {
		t.Errorf("asked %s", at)
	}
}

func TestClaimantFindsTheServerThatAnswers(t *testing.T) {
	w := newWorld(t, Config{})
	w.answers(claimServer(t))
	gone, ca := w.addServer("127.0.0.2", "127.0.0.2")
	gone.Close()
	invitation := w.invitation()
	invitation.Servers = []string{gone.URL, w.server.URL}
	invitation.CA = slices.Concat(invitation.CA, ca)
	if _, err := w.claimant(invitation).Read(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}
