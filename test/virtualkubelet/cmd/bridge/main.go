// Bridge is what the suite's pods run. The suite asks for the metrics of a node at a pod that is called like it, on port
// 10250, as which virtual-kubelet runs in its own tests, and without credentials. `bridge serve URL` is that pod: it asks
// the virtual node's kubelet API, with the token of its service account. `bridge wait` does nothing, for the pods whose
// images are called foo, bar and baz.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // where the token lies, and none itself

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		fmt.Fprintln(os.Stderr, serve(os.Args[2]))
		os.Exit(1)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}

func serve(address string) error {
	target, err := url.Parse(address)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+string(token))
		},
		// The node's certificate is made at its start, and signed by nobody.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // see above
	}
	server := &http.Server{
		Addr: ":10250", Handler: proxy, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	return server.ListenAndServeTLS("", "")
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, err
}
