// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestInvitationsAreWrittenAndRead(t *testing.T) {
	tests := map[string]func(i *Invitation){
		"all":               func(*Invitation) {},
		"for one direction": func(i *Invitation) { i.SealingKey = "" },
		"no authority":      func(i *Invitation) { i.CA = nil },
		"one server":        func(i *Invitation) { i.Servers = i.Servers[:1] },
		"many servers":      func(i *Invitation) { i.Servers = slices.Repeat([]string{"https://a/k8s"}, maxServers) },
		"ended long ago":    func(i *Invitation) { i.Expires = time.Unix(0, 0).UTC() },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			want := validInvitation(t)
			change(want)
			text, err := want.Format()
			if err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(text, " \n") {
				t.Errorf("%q is no single word", text)
			}
			got, err := ParseInvitation(" " + text + "\r\n")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if got.Mutual() != (want.SealingKey != "") {
				t.Errorf("mutual: %t", got.Mutual())
			}
		})
	}
}

func TestInvitationsThatCannotBeUsed(t *testing.T) {
	tests := map[string]func(i *Invitation){
		"no id":                  func(i *Invitation) { i.ID = "" },
		"long id":                func(i *Invitation) { i.ID = strings.Repeat("a", 64) },
		"id of two lines":        func(i *Invitation) { i.ID = "a\nb" },
		"no cluster id":          func(i *Invitation) { i.ClusterID = "" },
		"long cluster id":        func(i *Invitation) { i.ClusterID = strings.Repeat("a", 31) },
		"absurd cluster id":      func(i *Invitation) { i.ClusterID = "../x" },
		"no key":                 func(i *Invitation) { i.PublicKey = "" },
		"key that is none":       func(i *Invitation) { i.PublicKey = "AAAA" },
		"no server":              func(i *Invitation) { i.Servers = nil },
		"too many servers":       func(i *Invitation) { i.Servers = slices.Repeat([]string{"https://a"}, maxServers+1) },
		"server in the open":     func(i *Invitation) { i.Servers[1] = "http://192.0.2.1" },
		"server without host":    func(i *Invitation) { i.Servers[1] = "https://:6443" },
		"user in a server":       func(i *Invitation) { i.Servers[1] = "https://a:b@192.0.2.1" },
		"query in a server":      func(i *Invitation) { i.Servers[1] = "https://192.0.2.1/?a=b" },
		"fragment in a server":   func(i *Invitation) { i.Servers[1] = "https://192.0.2.1/#a" },
		"servers of other paths": func(i *Invitation) { i.Servers[1] = "https://192.0.2.1/k8s" },
		"authority that is none": func(i *Invitation) { i.CA = []byte("nonsense") },
		"system namespace":       func(i *Invitation) { i.Namespace = "kube-system" },
		"path as namespace":      func(i *Invitation) { i.Namespace = "hanse-peer-a/../kube-system" },
		"no token":               func(i *Invitation) { i.Token = "" },
		"token of two lines":     func(i *Invitation) { i.Token = "a\r\nX-Remote-User: b" },
		"token beyond a header":  func(i *Invitation) { i.Token = strings.Repeat("a", maxToken+1) },
		"sealing key of nothing": func(i *Invitation) { i.SealingKey = "AAAA" },
		"sealing key for all":    func(i *Invitation) { i.SealingKey = lowOrder },
		"no end":                 func(i *Invitation) { i.Expires = time.Time{} },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			invitation := validInvitation(t)
			change(invitation)
			text, err := invitation.Format()
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseInvitation(text)
			if !errors.Is(err, ErrInvitation) || got != nil {
				t.Fatalf("got %+v, %v, want %v", got, err, ErrInvitation)
			}
			if strings.Contains(err.Error(), "secret-token") || strings.Contains(err.Error(), "X-Remote-User") {
				t.Errorf("the error quotes the invitation: %v", err)
			}
		})
	}
}

func TestTextsThatAreNoInvitation(t *testing.T) {
	invitation := validInvitation(t)
	text, err := invitation.Format()
	if err != nil {
		t.Fatal(err)
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, prefix))
	if err != nil {
		t.Fatal(err)
	}
	of := func(json string) string { return prefix + base64.RawURLEncoding.EncodeToString([]byte(json)) }
	good := string(data)
	tests := map[string]string{
		"nothing":                   "",
		"the prefix alone":          prefix,
		"of another version":        strings.Replace(text, "hanse1.", "hanse2.", 1),
		"in capitals":               strings.ToUpper(text),
		"with a second one":         text + " " + text,
		"not base64":                text + "*",
		"with padding":              text + "=",
		"not JSON":                  of("x"),
		"null":                      of("null"),
		"a list":                    of("[" + good + "]"),
		"two objects":               of(good + good),
		"with a brace more":         of(good + "}"),
		"with a bracket more":       of(good + "]"),
		"with NUL behind":           of(good + "\x00"),
		"a number for a text":       of(strings.Replace(good, `"id":"`+invitation.ID+`"`, `"id":1e9`, 1)),
		"a time of five digits":     of(strings.Replace(good, "2026-", "12026-", 1)),
		"a time beyond the year":    of(strings.Replace(good, "2026-12-01T12:00:00Z", "9999-12-31T23:59:59-01:00", 1)),
		"a time before the year":    of(strings.Replace(good, "2026-12-01T12:00:00Z", "0001-01-01T00:30:00+01:00", 1)),
		"deep":                      of(strings.Repeat("[", 15_000)),
		"larger than an invitation": prefix + strings.Repeat("A", maxInvitation),
		"huge":                      strings.Repeat(" ", 1<<20) + prefix + strings.Repeat("A", 1<<20),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseInvitation(text); !errors.Is(err, ErrInvitation) || got != nil {
				t.Errorf("got %+v, %v, want %v", got, err, ErrInvitation)
			}
		})
	}
}

func TestInvitationsThatWereCutOffAreRefused(t *testing.T) {
	text, err := validInvitation(t).Format()
	if err != nil {
		t.Fatal(err)
	}
	for end := range len(text) {
		if _, err := ParseInvitation(text[:end]); !errors.Is(err, ErrInvitation) {
			t.Fatalf("after %d of %d characters: got %v, want %v", end, len(text), err, ErrInvitation)
		}
	}
}

func TestInvitationFitsIntoAClaim(t *testing.T) {
	invitation := validInvitation(t)
	// The largest that can be written.
	text, err := invitation.Format()
	if err != nil {
		t.Fatal(err)
	}
	invitation.Token += strings.Repeat("x", (maxInvitation-len(text))/4*3)
	if text, err = invitation.Format(); err != nil {
		t.Fatal(err)
	}
	if maxInvitation-len(text) > 4 {
		t.Fatalf("the test made one of %d bytes only", len(text))
	}
	sealed, err := Seal(sealing.Public(), []byte(text))
	if err != nil || len(sealed) > 32768 {
		t.Errorf("sealed it has %d bytes, %v", len(sealed), err)
	}
	invitation.CA = make([]byte, maxInvitation)
	if _, err := invitation.Format(); !errors.Is(err, ErrInvitation) {
		t.Errorf("wrote one that cannot be read: got %v, want %v", err, ErrInvitation)
	}
}

func FuzzParseInvitation(f *testing.F) {
	text, err := validInvitation(f).Format()
	if err != nil {
		f.Fatal(err)
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, prefix))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, true)
	f.Add([]byte(text), false)
	f.Add([]byte(prefix), false)
	f.Add([]byte(`{"ID":"a","iD":"b","expires":"9999-12-31T23:59:59-23:59"}`), true)
	f.Fuzz(func(t *testing.T, data []byte, encode bool) {
		text := string(data)
		if encode { // so that what is fuzzed is the JSON within
			text = prefix + base64.RawURLEncoding.EncodeToString(data)
		}
		got, err := ParseInvitation(text)
		if err != nil {
			if !errors.Is(err, ErrInvitation) {
				t.Errorf("got %v, want %v", err, ErrInvitation)
			}
			return
		}
		again, err := got.Format()
		if err != nil {
			return // written plainly, it is larger than it was
		}
		reread, err := ParseInvitation(again)
		if err != nil || !cmp.Equal(got, reread) {
			t.Errorf("%v, %s", err, cmp.Diff(got, reread))
		}
	})
}
