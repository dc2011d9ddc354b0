// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// authority signs client certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	a := authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.cert, a.key = a.sign(template, nil)
	return a
}

func (a authority) sign(template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a authority) client(name string) *x509.Certificate {
	made, _ := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, &a)
	return made
}

// reviewer is an API server that knows one token, and two users who may get the proxy of one node.
func reviewer(t *testing.T) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch path.Base(r.URL.Path) {
		case "tokenreviews":
			review := &authenticationv1.TokenReview{}
			answer = review
			_ = json.NewDecoder(r.Body).Decode(review)
			review.Status.Authenticated = review.Spec.Token == "good"
			review.Status.User.Username = "token-user"
		case "subjectaccessreviews":
			review := &authorizationv1.SubjectAccessReview{}
			answer = review
			_ = json.NewDecoder(r.Body).Decode(review)
			asked := review.Spec.ResourceAttributes
			review.Status.Allowed = asked != nil && asked.Resource == "nodes" && asked.Subresource == "proxy" &&
				asked.Name == turinNode && asked.Verb == "get" &&
				(review.Spec.User == "apiserver" || review.Spec.User == "token-user")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	httpClient := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		httpClient.CloseIdleConnections()
		server.Close()
	})
	clients, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func TestAccess(t *testing.T) {
	ours, theirs := newAuthority(t, "cluster"), newAuthority(t, "somebody")
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours.cert.Raw})
	authorities, err := dynamiccertificates.NewStaticCAContent("test", bundle)
	if err != nil {
		t.Fatal(err)
	}
	clients := reviewer(t)
	who, err := newAccess(clients, authorities)
	if err != nil {
		t.Fatal(err)
	}

	for name, tc := range map[string]struct {
		cert  *x509.Certificate
		token string
		node  string
		verb  string
		of    []string // the proxy, unless it says so
		want  int      // 0 if it is served
	}{
		"the API server with its certificate":      {cert: ours.client("apiserver"), node: turinNode, verb: "get"},
		"somebody with a token that is good":       {token: "good", node: turinNode, verb: "get"},
		"a certificate of another authority":       {cert: theirs.client("apiserver"), node: turinNode, verb: "get", want: http.StatusUnauthorized},
		"a token that is not good":                 {token: "bad", node: turinNode, verb: "get", want: http.StatusUnauthorized},
		"nobody":                                   {node: turinNode, verb: "get", want: http.StatusUnauthorized},
		"a certificate of somebody without rights": {cert: ours.client("guest"), node: turinNode, verb: "get", want: http.StatusForbidden},
		"another verb":                             {cert: ours.client("apiserver"), node: turinNode, verb: "create", want: http.StatusForbidden},
		"another node":                             {cert: ours.client("apiserver"), node: "hanse-milan", verb: "get", want: http.StatusForbidden},
		"what needs another subresource":           {cert: ours.client("apiserver"), node: turinNode, verb: "get", of: []string{"metrics"}, want: http.StatusForbidden},
		"what one of two subresources lets do":     {cert: ours.client("apiserver"), node: turinNode, verb: "get", of: []string{"pods", "proxy"}},
		"what no subresource stands for":           {cert: ours.client("apiserver"), node: turinNode, verb: "get", of: []string{}, want: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/containerLogs/shop/web-1/web", nil)
			r.TLS = &tls.ConnectionState{}
			if tc.cert != nil {
				r.TLS.PeerCertificates = []*x509.Certificate{tc.cert}
			}
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
			if tc.of == nil {
				tc.of = []string{"proxy"}
			}
			got := 0
			var refused *refusal
			if errors.As(who.check(r, tc.node, tc.verb, tc.of...), &refused) {
				got = refused.status
			}
			if got != tc.want {
				t.Errorf("status %d, want %d", got, tc.want)
			}
		})
	}
}
