// SPDX-License-Identifier: Apache-2.0

package unread

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// serve returns a client of a server that answers every request so, and what the last request accepted.
func serve(t *testing.T, code int, answer string) (client.Client, *string) {
	t.Helper()
	accepted := new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		*accepted = req.Header.Get("Accept")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{Host: server.URL, WrapTransport: Transport}, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c, accepted
}

const stored = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"n","name":"p","uid":"u"},"status":{"phase":"Running"}}`

func pod() *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name = "n", "p"
	return p
}

func TestAnswersThatNobodyReadsAreNotDecoded(t *testing.T) {
	c, accepted := serve(t, http.StatusOK, stored)
	writes := map[string]func(context.Context, *corev1.Pod) error{
		"create":           func(ctx context.Context, p *corev1.Pod) error { return c.Create(ctx, p) },
		"update":           func(ctx context.Context, p *corev1.Pod) error { return c.Update(ctx, p) },
		"update of status": func(ctx context.Context, p *corev1.Pod) error { return c.Status().Update(ctx, p) },
		"patch": func(ctx context.Context, p *corev1.Pod) error {
			return c.Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(`{}`)))
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			p := pod()
			if err := write(Answer(t.Context()), p); err != nil || p.UID != "" {
				t.Errorf("unread: UID %q, %v; want none", p.UID, err)
			}
			if *accepted != accept {
				t.Errorf("accepts %q", *accepted)
			}
			p = pod()
			if err := write(t.Context(), p); err != nil || p.UID != "u" {
				t.Errorf("read: UID %q, %v; want u", p.UID, err)
			}
		})
	}
}

func TestErrorsAreReadAlways(t *testing.T) {
	c, _ := serve(t, http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
	if err := c.Status().Update(Answer(t.Context()), pod()); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
}

func TestAnAnswerThatBreaksOffIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = fmt.Fprint(w, "{")
	}))
	defer server.Close()
	req, err := http.NewRequestWithContext(Answer(t.Context()), http.MethodPut, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := Transport(http.DefaultTransport).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
		t.Error("it is taken for an answer")
	}
}
