// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func now() time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
}

func parse(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestIssuedCertificatesAreTheAuthoritys(t *testing.T) {
	dir := t.TempDir()
	authority, err := OpenAuthority(dir, "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := OpenAuthority(t.TempDir(), "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	server := Request{
		Name: "server", User: "kube-apiserver", Groups: []string{"g"},
		Hosts: []string{"kubernetes"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3")},
	}
	client := Request{Name: "client", User: "admin"}
	for _, request := range []Request{server, client} {
		if err := authority.Issue(request); err != nil {
			t.Fatal(err)
		}
	}
	ours, theirs := x509.NewCertPool(), x509.NewCertPool()
	ours.AddCert(parse(t, filepath.Join(dir, "ca.crt")))
	theirs.AddCert(stranger.cert)
	for _, test := range []struct {
		name string
		cert string
		with x509.VerifyOptions
		want bool
	}{
		{"a server by its name", "server", serving(ours, "kubernetes"), true},
		{"a server by its address", "server", serving(ours, "10.1.2.3"), true},
		{"a server by another name", "server", serving(ours, "elsewhere"), false},
		{"a server with another authority", "server", serving(theirs, "kubernetes"), false},
		{"a client", "client", using(ours), true},
		{"a client as a server", "client", serving(ours, ""), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(t, filepath.Join(dir, test.cert+".crt")).Verify(test.with)
			if (err == nil) != test.want {
				t.Errorf("got %v, want valid: %v", err, test.want)
			}
		})
	}
	if subject := parse(t, filepath.Join(dir, "server.crt")).Subject; subject.CommonName != "kube-apiserver" || subject.Organization[0] != "g" {
		t.Errorf("subject %s", subject)
	}
}

func serving(roots *x509.CertPool, host string) x509.VerifyOptions {
	return x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
}

func using(roots *x509.CertPool) x509.VerifyOptions {
	return x509.VerifyOptions{Roots: roots, CurrentTime: now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

func TestWhatExistsIsKept(t *testing.T) {
	dir := t.TempDir()
	contents := func() string {
		authority, err := OpenAuthority(dir, "ca", now)
		if err != nil {
			t.Fatal(err)
		}
		if err := authority.Issue(Request{Name: "x", User: "x"}); err != nil {
			t.Fatal(err)
		}
		if err := EnsureKeyPair(dir, "sa"); err != nil {
			t.Fatal(err)
		}
		var all string
		for _, name := range []string{"ca.crt", "ca.key", "x.crt", "x.key", "sa.key", "sa.pub"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all += string(text)
		}
		return all
	}
	first := contents()
	if contents() != first {
		t.Error("something was made anew")
	}
	if err := os.Remove(filepath.Join(dir, "x.crt")); err != nil {
		t.Fatal(err)
	}
	if contents() == first {
		t.Error("what was missing was not made")
	}
}

func TestKeysAreForTheirOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	if err := EnsureKeyPair(dir, "sa"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "sa.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
