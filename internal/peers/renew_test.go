// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

func granted(token string, expires time.Time) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Status:   authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires)},
	}
}

func TestRenewAsksForATokenThatEndsWithTheSession(t *testing.T) {
	w := newWorld(t, Config{})
	expires := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		want := "POST /api/v1/namespaces/" + tenant + "/serviceaccounts/hanse-peer/token"
		if got := req.Method + " " + req.URL.Path; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		asked := &authenticationv1.TokenRequest{}
		if err := json.NewDecoder(req.Body).Decode(asked); err != nil {
			t.Error(err)
		}
		month := int64(30 * 24 * 3600)
		wanted := authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &month,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "hanse-session"},
		}
		if diff := cmp.Diff(wanted, asked.Spec); diff != "" {
			t.Error(diff)
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(rw).Encode(granted("new-token", expires))
	})
	got, err := w.connect().Renew(t.Context(), 30*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(trust.Session{Token: "new-token", Expires: expires}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRenewSaysWhatIsWrong(t *testing.T) {
	later := time.Now().Add(time.Hour)
	refuses := func(code int32, reason metav1.StatusReason) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { writeStatus(rw, code, reason) }
	}
	grants := func(token string, expires time.Time) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, granted(token, expires)) }
	}
	isKind := func(kind error) func(error) bool { return func(err error) bool { return errors.Is(err, kind) } }
	tests := map[string]struct {
		answer http.HandlerFunc
		want   func(error) bool
	}{
		"the session has ended":   {refuses(401, metav1.StatusReasonUnauthorized), isKind(ErrUnauthorized)},
		"a policy is against it":  {refuses(403, metav1.StatusReasonForbidden), isKind(ErrForbidden)},
		"the account is gone":     {refuses(404, metav1.StatusReasonNotFound), apierrors.IsNotFound},
		"overloaded":              {refuses(429, metav1.StatusReasonTooManyRequests), isKind(ErrUnreachable)},
		"no token":                {grants("", later), isKind(ErrMalformed)},
		"a token of two lines":    {grants("a\r\nX-Remote-User: b", later), isKind(ErrMalformed)},
		"a token beyond a header": {grants(strings.Repeat("x", 16<<10+1), later), isKind(ErrMalformed)},
		"a token without end":     {grants("new", time.Time{}), isKind(ErrMalformed)},
		"more than a token":       {grants(strings.Repeat("x", maxObject), later), isKind(ErrTooLarge)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.answers(test.answer)
			if got, err := w.connect().Renew(t.Context(), time.Hour); !test.want(err) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestANewTokenLeavesTheLinkAndItsWatchesOpen(t *testing.T) {
	w := newWorld(t, Config{})
	server := &apiServer{pages: []string{listOf(t, "", mapping("a", "1"))}, events: make(chan string)}
	watches := atomic.Int32{}
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/configmaps/") {
			writeJSON(rw, clusterInfo("c-hamburg", "dev"))
			return
		}
		if req.URL.Query().Has("watch") {
			watches.Add(1)
		}
		server.serve(rw, req)
	})
	link := w.join(w.credentials())
	mirror := w.watch(link, &v1alpha1.NamespaceMapping{})
	mirror.expectChanges("a")
	server.events <- event(t, "ADDED", mapping("b", "11"))
	mirror.expectChanges("b")
	before := link.RESTConfig()

	w.knows("renewed-token")
	if _, err := link.ClusterInfo(t.Context()); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("with the old token: got %v, want %v", err, ErrUnauthorized)
	}
	renewed := w.credentials()
	renewed.Token = "renewed-token"
	if again := w.join(renewed); again != link {
		t.Fatal("a new token has made a new link")
	}
	if _, err := link.ClusterInfo(t.Context()); err != nil {
		t.Errorf("with the new token: %v", err)
	}
	server.events <- event(t, "ADDED", mapping("c", "12"))
	mirror.expectChanges("c")
	if got := watches.Load(); got != 1 {
		t.Errorf("the watch was opened %d times", got)
	}
	if before.BearerToken != token || link.RESTConfig().BearerToken != "renewed-token" {
		t.Errorf("streams use token %q, and used %q", link.RESTConfig().BearerToken, before.BearerToken)
	}
	if again := w.ensure(); again != link {
		t.Error("the same Secret has made a new link")
	}
}

func TestAnythingElseThatIsNewMakesANewLink(t *testing.T) {
	tests := map[string]func(c *Credentials){
		"namespace":           func(c *Credentials) { c.Namespace += "-2" },
		"invitation":          func(c *Credentials) { c.Invitation = "4567" },
		"no invitation":       func(c *Credentials) { c.Invitation = "" },
		"authority":           func(c *Credentials) { c.CA = slices.Concat(c.CA, c.CA) },
		"another server":      func(c *Credentials) { c.Servers = []string{"https://192.0.2.1"} },
		"one more server":     func(c *Credentials) { c.Servers = append(c.Servers, "https://192.0.2.1") },
		"namespace and token": func(c *Credentials) { c.Namespace, c.Token = c.Namespace+"-2", "new" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			credentials := w.credentials()
			first := w.join(credentials)
			if first.Invitation() != "0123abcd" {
				t.Errorf("joined by invitation %q", first.Invitation())
			}
			change(&credentials)
			if second := w.join(credentials); second == first || second.Invitation() != credentials.Invitation {
				t.Errorf("got the old link, or one by invitation %q", second.Invitation())
			}
			expectClosed(t, first)
		})
	}
}

func TestTombstone(t *testing.T) {
	stone := clusterInfo("", "")
	stone.Name, stone.Data = v1alpha1.Tombstone, map[string]string{v1alpha1.TombstoneStatement: "gone"}
	empty := stone.DeepCopy()
	empty.Data = nil
	tests := map[string]struct {
		answer http.HandlerFunc
		want   func(statement string, err error) bool
	}{
		"there is one": {
			func(rw http.ResponseWriter, req *http.Request) {
				if want := "/api/v1/namespaces/" + tenant + "/configmaps/hanse-tombstone"; req.URL.Path != want {
					t.Errorf("asked for %s, want %s", req.URL.Path, want)
				}
				writeJSON(rw, stone)
			},
			func(statement string, err error) bool { return statement == "gone" && err == nil },
		},
		"it is empty": {
			func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, empty) },
			func(_ string, err error) bool { return errors.Is(err, ErrMalformed) },
		},
		"there is none": {
			func(rw http.ResponseWriter, _ *http.Request) { writeStatus(rw, 404, metav1.StatusReasonNotFound) },
			func(_ string, err error) bool { return apierrors.IsNotFound(err) },
		},
		"we may not read it": {
			func(rw http.ResponseWriter, _ *http.Request) { writeStatus(rw, 403, metav1.StatusReasonForbidden) },
			func(_ string, err error) bool { return errors.Is(err, ErrForbidden) },
		},
		"nobody knows us": {
			func(rw http.ResponseWriter, _ *http.Request) { writeStatus(rw, 401, metav1.StatusReasonUnauthorized) },
			func(_ string, err error) bool { return errors.Is(err, ErrUnauthorized) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.answers(test.answer)
			if statement, err := w.connect().Tombstone(t.Context()); !test.want(statement, err) {
				t.Errorf("got %q, %v", statement, err)
			}
		})
	}
}

func TestCancelledRenewalBlamesNobody(t *testing.T) {
	w := newWorld(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.connect().Renew(ctx, time.Hour); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
