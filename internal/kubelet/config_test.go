// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func TestConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		want   string // part of the error, "" for none
	}{
		"an address is enough":              {Config{NodeIP: netip.MustParseAddr("192.0.2.7")}, ""},
		"and needed":                        {Config{}, "node IP"},
		"nobody reaches the unspecified":    {Config{NodeIP: netip.IPv4Unspecified()}, "node IP"},
		"ports are a range":                 {Config{NodeIP: netip.MustParseAddr("192.0.2.7"), FirstPort: 30000, LastPort: 20000}, "range of ports"},
		"workers work":                      {Config{NodeIP: netip.MustParseAddr("192.0.2.7"), Workers: -1}, "workers"},
		"a lease is renewed before it ends": {Config{NodeIP: netip.MustParseAddr("192.0.2.7"), LeaseRenewal: time.Minute}, "lease"},
		"a certificate needs its key":       {Config{NodeIP: netip.MustParseAddr("192.0.2.7"), CertFile: "tls.crt"}, "key"},
	} {
		t.Run(name, func(t *testing.T) {
			config := tc.config
			config.Default()
			err := config.Validate()
			if tc.want == "" && err != nil {
				t.Errorf("error %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
		})
	}
}

// runs is a manager that has started.
type runs struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // of the test
}

// Add has it run until the test ends.
func (r runs) Add(runnable manager.Runnable) error {
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(r.ctx)
	go func() { done <- runnable.Start(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("watch certificate: %v", err)
		}
	})
	return nil
}

// mount makes files in a folder as a volume of a Secret has them: links to a folder that is changed as a whole.
func mount(t *testing.T, dir, version string, chain, key []byte) {
	t.Helper()
	folder := filepath.Join(dir, version)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": chain, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(version, next); err != nil {
		t.Fatal(err)
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data")) // none the first time
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if old == "" {
		return
	}
	if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
		t.Fatal(err)
	}
}

func TestMountedCertificateIsReadAgainWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	write := func(version, host string) {
		chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: host, MaxAge: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		mount(t, dir, version, chain, key)
	}
	write("1", "first.example")
	source, err := servingCertificate(
		Config{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}, runs{t, t.Context()}.Add)
	if err != nil {
		t.Fatal(err)
	}
	before, err := source(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf(t, before.Certificate[0]).VerifyHostname("first.example"); err != nil {
		t.Error(err)
	}
	write("2", "second.example")
	deadline := time.Now().Add(time.Minute)
	for now := before; bytes.Equal(now.Certificate[0], before.Certificate[0]); {
		if time.Now().After(deadline) {
			t.Fatal("the certificate is still the first one")
		}
		if now, err = source(nil); err != nil {
			t.Fatal(err)
		}
		if leaf(t, now.Certificate[0]).VerifyHostname("second.example") == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the certificate is neither of both")
}

func leaf(t *testing.T, raw []byte) *x509.Certificate {
	t.Helper()
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestCertificateIsMadeForTheAddressOfTheNodes(t *testing.T) {
	source, err := servingCertificate(Config{NodeIP: netip.MustParseAddr("192.0.2.7")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := source(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf(t, made.Certificate[0]).VerifyHostname("192.0.2.7"); err != nil {
		t.Error(err)
	}
}

func TestCertificateThatIsNotThere(t *testing.T) {
	if _, err := servingCertificate(Config{CertFile: "nowhere.crt", KeyFile: "nowhere.key"}, nil); err == nil {
		t.Error("no error")
	}
}
