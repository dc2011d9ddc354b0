// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const shopIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  tls: [{hosts: [shop.example], secretName: shop}]
  rules:
  - host: shop.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: echo, port: {number: 80}}}}]}
`

// ingressAnswersTheMachine reaches the workload of an earlier story through Traefik.
func ingressAnswersTheMachine(t *testing.T, b *bed) {
	b.run("up", "lubeck", "--ingress")
	cert, key, roots := certificate(t, "shop.example")
	b.kubectl("lubeck", "create", "secret", "tls", "shop", "--cert="+cert, "--key="+key)
	b.apply("lubeck", shopIngress)
	address := b.nodeAddress("lubeck", ".")
	get := asker(t, address, roots)
	for _, scheme := range []string{"http", "https"} {
		b.eventually(scheme+" to reach the pod", func() error {
			status, text, err := get(scheme + "://shop.example/hello")
			if err == nil && !strings.Contains(text, `"node": "lubeck-worker-1"`) {
				err = fmt.Errorf("answer %d %s", status, text)
			}
			return err
		})
	}
	if status, _, err := get("http://other.example"); err != nil || status != http.StatusNotFound {
		t.Errorf("another host: %d, %v", status, err)
	}
	b.eventually("the Ingress to say the address", func() error {
		got, err := b.kubectlTry("lubeck", "get", "ingress", "shop", "-o", "jsonpath={.spec.ingressClassName} {.status.loadBalancer.ingress[*].ip}")
		if err == nil && got != "traefik "+address {
			err = fmt.Errorf("it says %q", got)
		}
		return err
	})
	if text, err := b.try("up", "lubeck", "--ingress=false"); err == nil || !strings.Contains(text, "take it down first") {
		t.Errorf("Traefik taken away: %v %s", err, text)
	}
}

// asker returns what asks for a URL at the node ports of Traefik at the address.
func asker(t *testing.T, address string, roots *x509.CertPool) func(url string) (int, string, error) {
	t.Helper()
	ports := map[string]string{"80": "30080", "443": "30443"}
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, asked string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(asked)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(address, ports[port]))
		},
	}}
	return func(url string) (int, string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			return 0, "", err
		}
		answer, err := client.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text), err
	}
}

// certificate makes files of a certificate for a host and of its key, and what makes a client trust it.
func certificate(t *testing.T, host string) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, content []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	roots = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	return write("tls.crt", "CERTIFICATE", cert), write("tls.key", "PRIVATE KEY", private), roots
}
