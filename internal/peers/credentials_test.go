// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func validCredentials() Credentials {
	return Credentials{
		Servers: []string{"https://192.0.2.1:6443", "https://[2001:db8::1]:6443", "https://api.example.org"},
		CA:      []byte("ca"), Namespace: tenant, Token: token, Invitation: "0123abcd",
	}
}

func TestCredentialsGoIntoTheSecretAndBack(t *testing.T) {
	tests := map[string]func(c *Credentials){
		"all":               func(*Credentials) {},
		"one server":        func(c *Credentials) { c.Servers = c.Servers[:1] },
		"no authority":      func(c *Credentials) { c.CA = nil },
		"no invitation":     func(c *Credentials) { c.Invitation = "" },
		"the same path":     func(c *Credentials) { c.Servers = []string{"https://a/k8s/c", "https://b/k8s/c/"} },
		"many servers":      func(c *Credentials) { c.Servers = slices.Repeat([]string{"https://a"}, maxServers) },
		"the longest token": func(c *Credentials) { c.Token = strings.Repeat("x", 16<<10) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			want := validCredentials()
			change(&want)
			data, err := want.SecretData()
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseCredentials(data)
			if err != nil || !cmp.Equal(got, want) {
				t.Errorf("got %v, %s", err, cmp.Diff(want, got))
			}
		})
	}
}

func TestCredentialsAreRefused(t *testing.T) {
	tests := map[string]func(c *Credentials){
		"no server":            func(c *Credentials) { c.Servers = nil },
		"too many servers":     func(c *Credentials) { c.Servers = slices.Repeat([]string{"https://a"}, maxServers+1) },
		"huge server":          func(c *Credentials) { c.Servers[1] = "https://" + strings.Repeat("a", maxServers*maxServer) },
		"a server in the open": func(c *Credentials) { c.Servers[1] = "http://192.0.2.1" },
		"one of many servers on loopback, in the open": func(c *Credentials) { c.Servers[0] = "http://127.0.0.1" },
		"no URL":                    func(c *Credentials) { c.Servers[2] = "192.0.2.1:6443" },
		"user in a server":          func(c *Credentials) { c.Servers[2] = "https://a:b@192.0.2.1" },
		"different paths":           func(c *Credentials) { c.Servers[2] = "https://api.example.org/k8s" },
		"foreign namespace":         func(c *Credentials) { c.Namespace = "kube-system" },
		"no token":                  func(c *Credentials) { c.Token = "" },
		"token of two lines":        func(c *Credentials) { c.Token = "a\nb" },
		"long invitation":           func(c *Credentials) { c.Invitation = strings.Repeat("x", maxInvitationID+1) },
		"invitation of two lines":   func(c *Credentials) { c.Invitation = "a\nb" },
		"more than a Secret's part": func(c *Credentials) { c.CA = make([]byte, maxKubeconfig) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			credentials := validCredentials()
			change(&credentials)
			data, err := credentials.SecretData()
			if err == nil {
				t.Errorf("taken: %s", data)
			}
		})
	}
}

func TestCredentialsThatWouldLoseSomethingAreRefused(t *testing.T) {
	byHand := map[string][]byte{v1alpha1.LinkSecretKey: encode(t, validKubeconfig())} // with a tls-server-name
	got, err := ParseCredentials(byHand)
	if err != nil || got.Invitation != "" {
		t.Errorf("made by hand: got %+v, %v", got, err)
	}
	byHand[v1alpha1.LinkSecretInvitation] = []byte("0123abcd")
	if _, err := ParseCredentials(byHand); err == nil {
		t.Error("taken for credentials that joining has made")
	}
}

func FuzzParseCredentials(f *testing.F) {
	data, err := validCredentials().SecretData()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[v1alpha1.LinkSecretKey], data[v1alpha1.LinkSecretServers], data[v1alpha1.LinkSecretInvitation])
	f.Add(data[v1alpha1.LinkSecretKey], []byte("https://a\r\n\n https://b:1/"), []byte{})
	f.Add(encode(f, validKubeconfig()), []byte("https://"), []byte("x"))
	f.Fuzz(func(t *testing.T, kubeconfig, servers, invitation []byte) {
		got, err := ParseCredentials(map[string][]byte{
			v1alpha1.LinkSecretKey: kubeconfig, v1alpha1.LinkSecretServers: servers, v1alpha1.LinkSecretInvitation: invitation,
		})
		if err != nil || got.Token == "" {
			return
		}
		data, err := got.SecretData()
		if err != nil {
			t.Fatalf("cannot be written again: %v", err)
		}
		again, err := ParseCredentials(data)
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("%v, %s", err, cmp.Diff(got, again))
		}
	})
}
