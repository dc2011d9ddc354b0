// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
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
				body := &eventBody{ReadCloser: io.NopCloser(reader), left: maxEvent, receipt: &receipt{books: newLedger(DefaultBudget, nil, time.Now)}}
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

// A peer may answer anything to a request, and the decoder makes of an answer the kind that it says it is of.
func TestQuantitiesThatTakeForEverAreRefusedInAnyAnswer(t *testing.T) {
	const (
		pod   = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"c"},"spec":{"overhead":{"cpu":"1e-999999999"}}}`
		offer = `{"kind":"Advertisement","apiVersion":"hanse.dev/v1alpha1","spec":{"prices":{"perHour":{"cpu":1e-999999999}}}}`
		quota = `{"kind":"ResourceQuota","apiVersion":"v1","status":{"hard":{"cpu":"1e-999999999"}}}`
	)
	list := func(of string) string {
		return `{"kind":"PodList","apiVersion":"v1","items":[` + of + `]}`
	}
	get := func(c client.Client) error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "c"}, &corev1.ConfigMap{})
	}
	listed := func(c client.Client) error {
		return c.List(t.Context(), &v1alpha1.ShadowPodList{}, client.InNamespace(tenant))
	}
	created := func(c client.Client) error {
		return c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "c"}})
	}
	for name, test := range map[string]struct {
		status int
		answer string
		ask    func(client.Client) error
	}{
		"another kind":      {http.StatusOK, pod, get},
		"an offer":          {http.StatusOK, offer, get},
		"after a write":     {http.StatusCreated, quota, created},
		"a list":            {http.StatusOK, list(pod), listed},
		"instead of a list": {http.StatusOK, pod, listed},
		"an error":          {http.StatusConflict, pod, get},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.answers(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				rw.WriteHeader(test.status)
				_, _ = rw.Write([]byte(test.answer))
			})
			link := w.connect()
			start := time.Now()
			err := test.ask(link.Client())
			if took := time.Since(start); err == nil || took > time.Minute {
				t.Errorf("got %v after %s", err, took)
			}
		})
	}
}

func TestQuantitiesThatTakeForEverAreRefusedInEvents(t *testing.T) {
	const good = `{"type":"ADDED","object":{"kind":"Pod","metadata":{"annotations":{"sha":"1e12345"}},"spec":{"overhead":{"cpu":"1"}}}}`
	const bad = `{"type":"ADDED","object":{"kind":"Pod","spec":{"overhead":{"cpu":"1e-999999999"}}}}`
	places := sanitize.QuantitiesIn(reflect.TypeFor[corev1.Pod]()).Within("object")
	text := io.NopCloser(strings.NewReader(good + "\n" + good + bad + good))
	body := checkEvents(t.Context(), text, places, newLedger(DefaultBudget, nil, time.Now), time.Now)
	read, err := io.ReadAll(iotest.OneByteReader(body))
	if want := good + "\n" + good + "\n"; string(read) != want || !errors.Is(err, ErrMalformed) {
		t.Errorf("got %s, %v, want %s", read, err, want)
	}
}
