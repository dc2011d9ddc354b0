// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Provider is an honest API server in memory, as far as a consumer reads from it: it has objects, and lists and watches of
// them by namespace. It agrees to each write, and forgets it. It asks for no credentials.
type Provider struct {
	mu      sync.Mutex
	past    []change
	changed chan struct{} // closed at the next change
}

// A change is one that has happened. Its version is its place in the past, from 1 on.
type change struct {
	collection, name string
	event, object    json.RawMessage
}

// NewProvider returns one without objects.
func NewProvider() *Provider { return &Provider{changed: make(chan struct{})} }

// Put shows the object of the resource in its namespace.
func (p *Provider) Put(resource string, object client.Object) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	object.SetResourceVersion(fmt.Sprint(len(p.past) + 1))
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	event, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": object})
	if err != nil {
		return err
	}
	collection := "/namespaces/" + object.GetNamespace() + "/" + resource
	p.past = append(p.past, change{collection, object.GetName(), append(event, '\n'), raw})
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case isWatch(r):
		p.watch(w, r)
	case isList(r):
		p.list(w, r)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`))
	default:
		_, _ = w.Write([]byte(`{"kind":"ShadowPod","apiVersion":"hanse.dev/v1alpha1"}`))
	}
}

// list answers with what there is now. A list of one name has that object alone.
func (p *Provider) list(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	past := p.past
	p.mu.Unlock()
	newest := map[string]json.RawMessage{}
	for _, c := range past {
		if c.isFor(r) {
			newest[c.name] = c.object
		}
	}
	items := make([]json.RawMessage, 0, len(newest))
	for _, object := range newest {
		items = append(items, object)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "hanse.dev/v1alpha1", "kind": kinds[resourceOf(r)] + "List", "items": items,
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(len(past))},
	})
}

// watch answers with what changes after the version that is asked for.
func (p *Provider) watch(w http.ResponseWriter, r *http.Request) {
	seen := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &seen)
	controller := http.NewResponseController(w)
	for {
		p.mu.Lock()
		past, changed := p.past, p.changed
		p.mu.Unlock()
		for ; seen < len(past); seen++ {
			if past[seen].isFor(r) {
				_, _ = w.Write(past[seen].event)
			}
		}
		if controller.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (c change) isFor(r *http.Request) bool {
	name, one := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return strings.HasSuffix(r.URL.Path, c.collection) && (!one || name == c.name)
}
