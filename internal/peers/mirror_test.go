// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// An apiServer answers lists with pages and watches with events.
type apiServer struct {
	pages  []string    // one after the other
	events chan string // of the watch that is open; closing it ends the watch
}

func (s *apiServer) serve(rw http.ResponseWriter, req *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	if req.URL.Query().Get("watch") == "" {
		page := 0
		_, _ = fmt.Sscan(req.URL.Query().Get("continue"), &page)
		_, _ = rw.Write([]byte(s.pages[page]))
		return
	}
	rw.WriteHeader(http.StatusOK)
	rw.(http.Flusher).Flush()
	for {
		select {
		case event, open := <-s.events:
			if !open {
				return
			}
			_, _ = rw.Write([]byte(event))
			rw.(http.Flusher).Flush()
			if len(event) > maxEvent {
				<-req.Context().Done()
				return // further events are for the next watch
			}
		case <-req.Context().Done():
			return
		}
	}
}

func mapping(name, version string) *v1alpha1.NamespaceMapping {
	return &v1alpha1.NamespaceMapping{
		TypeMeta:   metav1.TypeMeta{APIVersion: "hanse.dev/v1alpha1", Kind: "NamespaceMapping"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, ResourceVersion: version},
	}
}

func listOf(t *testing.T, next string, items ...any) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"apiVersion": "hanse.dev/v1alpha1", "kind": "NamespaceMappingList",
		"metadata": map[string]any{"resourceVersion": "10", "continue": next}, "items": items,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func event(t *testing.T, kind string, object any) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + "\n"
}

// A watched is a mirror and the keys of the changes that it told.
type watched struct {
	*Mirror
	t       *testing.T
	changes chan string
}

func (w *world) watch(link *Link, example client.Object) *watched {
	w.t.Helper()
	changes := make(chan string, 10_000)
	mirror, err := link.Watch(w.t.Context(), &Subject{Example: example}, tenant, func(key types.NamespacedName) { changes <- key.Name })
	if err != nil {
		w.t.Fatal(err)
	}
	return &watched{Mirror: mirror, t: w.t, changes: changes}
}

func (w *watched) expectSync() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := w.WaitForSync(ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) expectChanges(names ...string) {
	w.t.Helper()
	for range names {
		select {
		case got := <-w.changes:
			if !slices.Contains(names, got) {
				w.t.Errorf("%s changed, want one of %v", got, names)
			}
		case <-time.After(time.Minute):
			w.t.Fatalf("want changes of %v; last error of the mirror: %v", names, w.Err())
		}
	}
}

func (w *watched) versions() map[string]string {
	versions := map[string]string{} // name → resource version
	for _, object := range w.List() {
		versions[object.GetName()] = object.GetResourceVersion()
	}
	return versions
}

func (w *watched) expectVersions(want map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.versions()); diff != "" {
		w.t.Errorf("mirror (-want +got):\n%s", diff)
	}
}

// expectErr waits until the mirror tells an error of that kind.
func (w *watched) expectErr(kind error) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !errors.Is(w.Err(), kind); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("got %v, want %v", w.Err(), kind)
		}
	}
}

func TestMirrorFollowsThePeer(t *testing.T) {
	for name, example := range map[string]client.Object{
		"typed":        &v1alpha1.NamespaceMapping{},
		"unstructured": unstructuredMapping(),
	} {
		t.Run(name, func(t *testing.T) {
			server := &apiServer{
				pages:  []string{listOf(t, "1", mapping("a", "1"), mapping("b", "2")), listOf(t, "", mapping("c", "3"))},
				events: make(chan string),
			}
			w := newWorld(t, Config{})
			w.answers(server.serve)
			m := w.watch(w.connect(), example)
			m.expectSync()
			m.expectChanges("a", "b", "c")
			m.expectVersions(map[string]string{"a": "1", "b": "2", "c": "3"})

			server.events <- event(t, "MODIFIED", mapping("a", "11"))
			m.expectChanges("a")
			server.events <- event(t, "DELETED", mapping("b", "12"))
			m.expectChanges("b")
			server.events <- event(t, "ADDED", mapping("d", "13"))
			m.expectChanges("d")
			m.expectVersions(map[string]string{"a": "11", "c": "3", "d": "13"})
			if object, ok := m.Get(types.NamespacedName{Namespace: tenant, Name: "d"}); !ok || object.GetName() != "d" {
				t.Errorf("Get: got %v, %t", object, ok)
			}
			if err := m.Err(); err != nil {
				t.Errorf("Err: %v", err)
			}
		})
	}
}

func TestMirrorOfSomeObjectsAsksForThoseAlone(t *testing.T) {
	asked := make(chan string, 10)
	server := &apiServer{pages: []string{listOf(t, "", mapping("a", "1"))}, events: make(chan string)}
	w := newWorld(t, Config{})
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		asked <- req.URL.Query().Get("labelSelector")
		server.serve(rw, req)
	})
	of := &Subject{Example: &v1alpha1.NamespaceMapping{}, Labels: labels.SelectorFromSet(labels.Set{"whose": "ours"})}
	m, err := w.connect().Watch(t.Context(), of, tenant, func(types.NamespacedName) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{"list", "watch"} {
		if got := <-asked; got != "whose=ours" {
			t.Errorf("%s: the selector is %q", request, got)
		}
	}
}

func unstructuredMapping() *unstructured.Unstructured {
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceMapping"))
	return example
}

func TestMirrorPassesOverForgedObjects(t *testing.T) {
	forged := mapping("forged", "2")
	forged.Namespace = "kube-system"
	server := &apiServer{
		pages:  []string{listOf(t, "", mapping("a", "1"), forged, mapping("", "3"))},
		events: make(chan string),
	}
	w := newWorld(t, Config{})
	w.answers(server.serve)
	m := w.watch(w.connect(), &v1alpha1.NamespaceMapping{})
	m.expectSync()
	server.events <- event(t, "ADDED", forged)
	server.events <- event(t, "ADDED", &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "other-kind"},
	})
	server.events <- event(t, "ADDED", mapping("b", "4"))
	m.expectChanges("a", "b")
	m.expectVersions(map[string]string{"a": "1", "b": "4"})
}

func TestMirrorOfAPeerThatAnswersNonsense(t *testing.T) {
	large := mapping("large", "1")
	large.Annotations = map[string]string{"x": strings.Repeat("x", maxList)}
	tests := map[string]struct {
		page string
		want error
	}{
		"an undecodable object": {page: listOf(t, "", mapping("a", "1"), map[string]any{"metadata": 7}), want: ErrMalformed},
		"no list":               {page: "[]", want: ErrMalformed},
		"half a list":           {page: listOf(t, "", mapping("a", "1"))[:50], want: ErrMalformed},
		"a list too large":      {page: listOf(t, "", large), want: ErrTooLarge},
		"pages without end":     {page: listOf(t, "0"), want: ErrOverBudget},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.answers((&apiServer{pages: []string{test.page}}).serve)
			m := w.watch(w.connect(), &v1alpha1.NamespaceMapping{})
			m.expectErr(test.want)
			if m.HasSynced() {
				t.Error("has synced without a list")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := m.WaitForSync(ctx); !errors.Is(err, test.want) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("WaitForSync: %v", err)
			}
		})
	}
}

func TestOneUndecodableObjectHidesNoOtherWhenUnstructured(t *testing.T) {
	absurd := map[string]any{
		"apiVersion": "hanse.dev/v1alpha1", "kind": "NamespaceMapping", "spec": "not an object",
		"metadata": map[string]any{"namespace": tenant, "name": "absurd", "resourceVersion": "1"},
	}
	w := newWorld(t, Config{})
	w.answers((&apiServer{pages: []string{listOf(t, "", absurd, mapping("b", "2"))}}).serve)
	m := w.watch(w.connect(), unstructuredMapping())
	m.expectSync()
	m.expectVersions(map[string]string{"absurd": "1", "b": "2"})
}

func TestMirrorOutlivesAnEventThatIsTooLarge(t *testing.T) {
	server := &apiServer{pages: []string{listOf(t, "", mapping("a", "1"))}, events: make(chan string)}
	w := newWorld(t, Config{})
	w.answers(server.serve)
	m := w.watch(w.connect(), &v1alpha1.NamespaceMapping{})
	m.expectSync()
	m.expectChanges("a")
	large := mapping("large", "2")
	large.Annotations = map[string]string{"x": strings.Repeat("x", maxEvent)}
	server.events <- event(t, "ADDED", large)
	server.events <- event(t, "ADDED", mapping("b", "3"))
	m.expectChanges("b")
	m.expectVersions(map[string]string{"a": "1", "b": "3"})
}

func TestMirrorComesBackWithItsPeer(t *testing.T) {
	server := &apiServer{pages: []string{listOf(t, "", mapping("a", "1"), mapping("b", "2"))}, events: make(chan string)}
	w := newWorld(t, Config{})
	w.answers(server.serve)
	m := w.watch(w.connect(), &v1alpha1.NamespaceMapping{})
	m.expectSync()
	m.expectChanges("a", "b")

	// A peer that was away only for a moment goes on with the watch, and is asked for no list.
	listed := make(chan struct{})
	tell := sync.OnceFunc(func() { close(listed) })
	w.answers(func(rw http.ResponseWriter, r *http.Request) {
		writeStatus(rw, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		if r.URL.Query().Get("watch") == "" {
			tell()
		}
	})
	w.server.CloseClientConnections()
	<-listed
	m.expectErr(ErrUnreachable)
	m.expectVersions(map[string]string{"a": "1", "b": "2"})

	back := &apiServer{pages: []string{listOf(t, "", mapping("a", "1"), mapping("c", "9"))}}
	w.answers(back.serve)
	m.expectChanges("b", "c")
	m.expectVersions(map[string]string{"a": "1", "c": "9"})
	m.expectErr(nil)
}

func TestMirrorEndsWithItsLink(t *testing.T) {
	server := &apiServer{pages: []string{listOf(t, "")}, events: make(chan string)}
	w := newWorld(t, Config{})
	w.answers(server.serve)
	link := w.connect()
	m := w.watch(link, &v1alpha1.NamespaceMapping{})
	m.expectSync()
	w.links.Close(w.peer.Name)
	<-m.ctx.Done()
	if _, err := link.Watch(t.Context(), Mappings, tenant, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("watch over a closed link: got %v, want %v", err, ErrClosed)
	}
}

func TestWatchNeedsANamespace(t *testing.T) {
	w := newWorld(t, Config{})
	if _, err := w.connect().Watch(t.Context(), Mappings, "", nil); err == nil {
		t.Error("watches all namespaces of a peer")
	}
}
