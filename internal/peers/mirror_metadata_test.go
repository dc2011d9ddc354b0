// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// metadataOf is what an API server answers to those who ask for nothing but metadata.
func metadataOf(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, ResourceVersion: version},
	}
}

func TestMirrorOfMetadataAsksForNothingElse(t *testing.T) {
	list := strings.NewReplacer("hanse.dev/v1alpha1", "meta.k8s.io/v1", "NamespaceMappingList", "PartialObjectMetadataList").
		Replace(listOf(t, "", metadataOf("a", "1"), metadataOf("b", "2")))
	server := &apiServer{pages: []string{list}, events: make(chan string)}
	var forMore atomic.Value
	w := newWorld(t, Config{})
	w.answers(func(rw http.ResponseWriter, req *http.Request) {
		accepted := req.Header.Get("Accept")
		if strings.Contains(accepted, "protobuf") || !strings.HasPrefix(accepted, "application/json;as=PartialObjectMetadata") {
			forMore.Store(accepted)
		}
		server.serve(rw, req)
	})
	example := &metav1.PartialObjectMetadata{}
	example.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceMapping"))
	m := w.watch(w.connect(), example)
	m.expectSync()
	m.expectChanges("a", "b")

	server.events <- event(t, "MODIFIED", metadataOf("a", "11"))
	m.expectChanges("a")
	server.events <- event(t, "DELETED", metadataOf("b", "12"))
	m.expectChanges("b")
	m.expectVersions(map[string]string{"a": "11"})
	if got := forMore.Load(); got != nil {
		t.Errorf("asked for %v", got)
	}
}
