// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour
	skew     = time.Hour // how far behind a clock may be and still take a new certificate
)

// Authority signs certificates.
type Authority struct {
	Name  string // of its files: NAME.crt and NAME.key
	dir   string
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	clock func() time.Time
}

// Request says what a certificate is for. With Hosts or Addresses it serves, and it always is a client's too.
type Request struct {
	Name      string // of its files: NAME.crt and NAME.key
	User      string
	Groups    []string
	Hosts     []string
	Addresses []netip.Addr
}

// OpenAuthority reads the authority of that name in the folder, or makes it.
func OpenAuthority(dir, name string, clock func() time.Time) (*Authority, error) {
	authority := &Authority{Name: name, dir: dir, clock: clock}
	if err := authority.read(); !errors.Is(err, fs.ErrNotExist) {
		return authority, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	authority.key, authority.cert = key, template
	if err := authority.sign(template, key, name); err != nil {
		return nil, err
	}
	return authority, authority.read()
}

func (a *Authority) read() error {
	certText, err := os.ReadFile(certPath(a.dir, a.Name))
	if err != nil {
		return err
	}
	keyText, err := os.ReadFile(keyPath(a.dir, a.Name))
	if err != nil {
		return err
	}
	certBlock, _ := pem.Decode(certText)
	keyBlock, _ := pem.Decode(keyText)
	if certBlock == nil || keyBlock == nil {
		return fmt.Errorf("authority %s in %s: not PEM", a.Name, a.dir)
	}
	if a.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return fmt.Errorf("certificate of authority %s: %w", a.Name, err)
	}
	if a.key, err = x509.ParseECPrivateKey(keyBlock.Bytes); err != nil {
		return fmt.Errorf("key of authority %s: %w", a.Name, err)
	}
	return nil
}

// Issue makes a certificate and its key, unless their files exist.
func (a *Authority) Issue(request Request) error {
	if exists(certPath(a.dir, request.Name)) && exists(keyPath(a.dir, request.Name)) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	return a.sign(request.template(), key, request.Name)
}

func (r Request) template() *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.User, Organization: r.Groups},
		DNSNames:    r.Hosts,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, address := range r.Addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
	}
	if len(r.Hosts)+len(r.Addresses) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return template
}

// sign writes the key first: without its certificate it counts as not made.
func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey, name string) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	template.NotBefore = a.clock().Add(-skew)
	template.NotAfter = a.clock().Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return fmt.Errorf("sign certificate %s: %w", name, err)
	}
	if err := writeKey(keyPath(a.dir, name), key); err != nil {
		return err
	}
	return writePEM(certPath(a.dir, name), "CERTIFICATE", der)
}

// EnsureKeyPair makes a key NAME.key and its public half NAME.pub, unless the files exist.
func EnsureKeyPair(dir, name string) error {
	public := filepath.Join(dir, name+".pub")
	if exists(public) && exists(keyPath(dir, name)) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	if err := writeKey(keyPath(dir, name), key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return writePEM(public, "PUBLIC KEY", der)
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

// writePEM leaves no half a file behind when it is killed.
func writePEM(path, kind string, der []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func certPath(dir, name string) string {
	return filepath.Join(dir, name+".crt")
}

func keyPath(dir, name string) string {
	return filepath.Join(dir, name+".key")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
