package peers

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	authorizationv1 "k8s.io/api/authorization/v1"
)

func TestAnswerOf(t *testing.T) {
	tests := map[string]answer{
		"/api/v1/namespaces/n/configmaps/x":                              answerObject,
		"/api/v1/namespaces/n/configmaps":                                answerList,
		"/api/v1/namespaces/n":                                           answerObject,
		"/api/v1/namespaces":                                             answerList,
		"/api/v1/pods?watch=1":                                           answerWatch,
		"/apis/hanse.dev/v1alpha1/namespaces/n/shadowpods":               answerList,
		"/apis/hanse.dev/v1alpha1/namespaces/n/shadowpods?watch=true":    answerWatch,
		"/apis/hanse.dev/v1alpha1/namespaces/n/shadowpods/p/status":      answerObject,
		"/api/v1/namespaces/n/pods/p/log?follow=true":                    answerStream,
		"/api/v1/namespaces/n/pods/p/exec":                               answerStream,
		"/prefix/api/v1/namespaces/n/pods/p/portforward":                 answerStream,
		"/prefix/apis/hanse.dev/v1alpha1/namespaces/n/namespacemappings": answerList,
		"/prefix/version":                                                answerObject,
		"/api":                                                           answerObject,
		"/api/v1/":                                                       answerObject,
		"/apis/hanse.dev":                                                answerObject,
		"/":                                                              answerObject,
	}
	for address, want := range tests {
		u, err := url.Parse("https://peer" + address)
		if err != nil {
			t.Fatal(err)
		}
		if got := answerOf(&http.Request{Method: http.MethodGet, URL: u}, "/prefix"); got != want {
			t.Errorf("%s: got %d, want %d", address, got, want)
		}
	}
}

func TestEventsAreLimitedOneByOne(t *testing.T) {
	line := strings.Repeat("x", maxEvent)
	tests := map[string]struct {
		body string
		want error
	}{
		"many events of the largest size":          {body: strings.Repeat(line+"\n", 3)},
		"one event that is larger":                 {body: "{}\nx" + line + "\n", want: ErrTooLarge},
		"an event that does not end":               {body: "{}\nx" + line, want: ErrTooLarge},
		"the largest event that has not ended yet": {body: "\n\n" + line},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, reader := range []io.Reader{strings.NewReader(test.body), iotest.HalfReader(strings.NewReader(test.body))} {
				body := &eventBody{ReadCloser: io.NopCloser(reader), left: maxEvent, receipt: &receipt{books: newLedger(DefaultBudget)}}
				if _, err := io.Copy(io.Discard, body); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			}
		})
	}
}

func TestWeMayAskWhatWeMay(t *testing.T) {
	w := newWorld(t, Config{})
	asked := ""
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		asked = req.Method + " " + req.URL.Path
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`))
	})
	review := &authorizationv1.SelfSubjectAccessReview{}
	if err := w.connect().Client().Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if want := "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"; asked != want || !review.Status.Allowed {
		t.Errorf("asked %q, want %q; got %+v", asked, want, review.Status)
	}
}
