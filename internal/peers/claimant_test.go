// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	claimantToken = "claimant-token"
	claimsPath    = "/apis/hanse.dev/v1alpha1/namespaces/" + tenant + "/peeringclaims"
)

func (w *world) invitation() *trust.Invitation {
	w.knows(claimantToken)
	return &trust.Invitation{
		ID: "0123abcd", ClusterID: "c-hamburg", Servers: []string{w.server.URL}, CA: w.ca(), Namespace: tenant,
		Token: claimantToken, Expires: time.Now().Add(time.Hour),
	}
}

func (w *world) claimant(invitation *trust.Invitation) *Claimant {
	w.t.Helper()
	claimant, err := w.links.Claimant(w.t.Context(), invitation)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(claimant.Close)
	return claimant
}

// claimServer keeps one claim.
func claimServer(t *testing.T) http.HandlerFunc {
	var kept *v1alpha1.PeeringClaim // only one request is made at a time
	return func(rw http.ResponseWriter, req *http.Request) {
		switch asked := req.Method + " " + req.URL.Path; {
		case asked == "POST "+claimsPath && kept != nil:
			writeStatus(rw, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		case asked == "POST "+claimsPath:
			kept = &v1alpha1.PeeringClaim{}
			if err := json.NewDecoder(req.Body).Decode(kept); err != nil {
				t.Error(err)
			}
			kept.ResourceVersion = "1"
			writeJSON(rw, kept)
		case asked == "GET "+claimsPath+"/claim" && kept == nil:
			writeStatus(rw, http.StatusNotFound, metav1.StatusReasonNotFound)
		case asked == "GET "+claimsPath+"/claim":
			writeJSON(rw, kept)
		default:
			t.Errorf("asked %s", asked)
		}
	}
}

func TestClaimantMakesOneClaimAndReadsIt(t *testing.T) {
	w := newWorld(t, Config{})
	w.answers(claimServer(t))
	claimant := w.claimant(w.invitation())
	if _, err := claimant.Read(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("before: got %v, want NotFound", err)
	}
	claim := &v1alpha1.PeeringClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "other"},
		Spec:       v1alpha1.PeeringClaimSpec{Invitation: "0123abcd", ClusterID: "c-lubeck"},
	}
	if err := claimant.Claim(t.Context(), claim.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := claimant.Claim(t.Context(), claim); !apierrors.IsAlreadyExists(err) {
		t.Errorf("again: got %v, want AlreadyExists", err)
	}
	got, err := claimant.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Namespace != tenant || got.Name != "claim" || got.Spec != claim.Spec {
		t.Errorf("got %+v", got)
	}
}

func TestClaimantSaysWhatIsWrong(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { writeStatus(rw, code, reason) }
	}
	tests := map[string]struct {
		answer  http.HandlerFunc
		timeout time.Duration // by default ample
		want    error
	}{
		"the invitation has ended": {answer: status(401, metav1.StatusReasonUnauthorized), want: ErrUnauthorized},
		"the name is not allowed":  {answer: status(403, metav1.StatusReasonForbidden), want: ErrForbidden},
		"overloaded":               {answer: status(429, metav1.StatusReasonTooManyRequests), want: ErrUnreachable},
		"a redirect":               {answer: redirect, want: ErrMalformed},
		"a web page":               {answer: func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>")) }, want: ErrMalformed},
		"another kind": {
			answer: func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(`{"kind":"Secret","spec":1}`)) },
			want:   ErrMalformed,
		},
		"too large": {
			answer: func(rw http.ResponseWriter, _ *http.Request) {
				writeJSON(rw, &v1alpha1.PeeringClaim{Spec: v1alpha1.PeeringClaimSpec{Invitation: strings.Repeat("x", maxObject)}})
			},
			want: ErrTooLarge,
		},
		"slow": {
			answer:  func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
			timeout: 100 * time.Millisecond,
			want:    ErrUnreachable,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{Timeout: test.timeout})
			w.answers(test.answer)
			claimant := w.claimant(w.invitation())
			_, err := claimant.Read(t.Context())
			if !errors.Is(err, test.want) {
				t.Errorf("read: got %v, want %v", err, test.want)
			}
			err = claimant.Claim(t.Context(), &v1alpha1.PeeringClaim{})
			if !errors.Is(err, test.want) {
				t.Errorf("claim: got %v, want %v", err, test.want)
			}
			if strings.Contains(err.Error(), claimantToken) {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
}

func redirect(rw http.ResponseWriter, req *http.Request) {
	http.Redirect(rw, req, "/elsewhere", http.StatusTemporaryRedirect)
}

func TestInvitationsThatLeadNowhereAreRefused(t *testing.T) {
	w := newWorld(t, Config{})
	tests := map[string]func(i *trust.Invitation){
		"no server":         func(i *trust.Invitation) { i.Servers = nil },
		"in the open":       func(i *trust.Invitation) { i.Servers = []string{"http://192.0.2.1"} },
		"different paths":   func(i *trust.Invitation) { i.Servers = []string{"https://a", "https://a/b"} },
		"foreign namespace": func(i *trust.Invitation) { i.Namespace = "kube-system" },
		"broken authority":  func(i *trust.Invitation) { i.CA = []byte("nonsense") },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			invitation := w.invitation()
			change(invitation)
			if _, err := w.links.Claimant(t.Context(), invitation); !errors.Is(err, ErrCredentialsInvalid) {
				t.Errorf("got %v, want %v", err, ErrCredentialsInvalid)
			}
		})
	}
}

func TestClaimantLeaves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tests := map[string]func(*Claimant){
		"by itself":         func(c *Claimant) { c.Close() },
		"with its context":  func(*Claimant) { cancel() },
		"when both ends it": func(c *Claimant) { c.Close(); cancel(); c.Close() },
	}
	for name, leave := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.answers(claimServer(t))
			ctx, cancel = context.WithCancel(t.Context())
			defer cancel()
			claimant, err := w.links.Claimant(ctx, w.invitation())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := claimant.Read(t.Context()); !apierrors.IsNotFound(err) {
				t.Fatalf("before: got %v, want NotFound", err)
			}
			leave(claimant)
			if _, err := claimant.Read(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("afterwards: got %v, want %v", err, ErrClosed)
			}
		})
	}
}
