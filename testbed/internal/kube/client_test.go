// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanse-dev/hanse/testbed/internal/pki"
	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// serve starts a server with TLS and makes a client for it.
func serve(t *testing.T, handle http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewTLSServer(handle)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	authority, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := authority.Issue(pki.Request{Name: "admin", User: "admin"}); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	client, err := New(server.URL, Credentials{
		CA:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		Cert: read("admin.crt"), Key: read("admin.key"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestApplyIsAServerSideApply(t *testing.T) {
	var got string
	client := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.String() + " " + r.Header.Get("Content-Type") + " " + string(body)
	})
	if err := client.Apply(t.Context(), "/api/v1/nodes/a", map[string]string{"kind": "Node"}); err != nil {
		t.Fatal(err)
	}
	want := `PATCH /api/v1/nodes/a?fieldManager=hanse-testbed&force=true application/apply-patch+yaml {"kind":"Node"}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := client.ApplyText(t.Context(), "/api/v1/nodes/a", []byte("kind: Node")); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(got, " application/apply-patch+yaml kind: Node") {
		t.Errorf("what was written became %s", got)
	}
}

func TestErrorsSayWhatTheServerSaid(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"/missing": 404, "/forbidden": 403}[r.URL.Path])
		_, _ = w.Write([]byte(`{"kind":"Status","message":"because ` + r.URL.Path + `"}`))
	})
	missing := client.Get(t.Context(), "/missing", nil)
	if !IsNotFound(missing) || !strings.Contains(missing.Error(), "because /missing") {
		t.Errorf("got %v", missing)
	}
	if forbidden := client.Get(t.Context(), "/forbidden", nil); forbidden == nil || IsNotFound(forbidden) {
		t.Errorf("got %v", forbidden)
	}
	if err := client.Delete(t.Context(), "/missing"); err != nil {
		t.Errorf("delete what is gone: %v", err)
	}
	if err := client.Delete(t.Context(), "/forbidden"); err == nil {
		t.Error("delete what is forbidden: no error")
	}
}

func TestNodes(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("labelSelector"); got != "type=kwok" {
			t.Errorf("selector %q", got)
		}
		_, _ = w.Write([]byte(`{"items": [
			{"metadata": {"name": "new"}, "spec": {}},
			{"metadata": {"name": "ready"}, "spec": {"podCIDRs": ["10.244.3.0/24", "fd00:10:244:3::/64"]},
			 "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
			{"metadata": {"name": "broken"}, "status": {"conditions": [{"type": "Ready", "status": "False", "message": "no network"}]}}
		]}`))
	})
	nodes, err := Nodes(t.Context(), client, SimulatedSelector)
	if err != nil || len(nodes) != 3 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParsePrefix("fd00:10:244:3::/64")}
	if len(nodes[0].Spec.PodCIDRs) > 0 || !slices.Equal(nodes[1].Spec.PodCIDRs, want) {
		t.Errorf("ranges %v and %v", nodes[0].Spec.PodCIDRs, nodes[1].Spec.PodCIDRs)
	}
	if nodes[0].Readiness() == nil || nodes[1].Readiness() != nil {
		t.Errorf("readiness %v and %v", nodes[0].Readiness(), nodes[1].Readiness())
	}
	if err := nodes[2].Readiness(); err == nil || !strings.Contains(err.Error(), "no network") {
		t.Errorf("readiness %v", err)
	}
}

func TestBaseObjectsHaveTheirOwnNamesAtTheirPaths(t *testing.T) {
	c := &plan.Cluster{Name: "a", Index: 1, Options: plan.DefaultOptions()}
	c.Options.Metrics, c.Options.Snapshots, c.Options.Ingress, c.Options.Multicluster = true, true, true, true
	for _, object := range append(append(Base(c), Defined(c)...), SimulatedNode(c, 7)) {
		metadata := object.Body["metadata"].(map[string]any)
		name := strings.ReplaceAll(metadata["name"].(string), ":", "%3A")
		if !strings.HasSuffix(strings.ReplaceAll(object.Path, ":", "%3A"), "/"+name) {
			t.Errorf("%s is at %s", metadata["name"], object.Path)
		}
	}
}

func TestDefinitionsAreOfWhatIsAskedFor(t *testing.T) {
	c := &plan.Cluster{Bin: "/bin", Options: plan.DefaultOptions()}
	if got := Definitions(c); len(got) != 0 {
		t.Errorf("by default: %v", got)
	}
	c.Options.Snapshots = true
	got := Definitions(c)
	want := Definition{
		Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/volumesnapshots.snapshot.storage.k8s.io",
		File: "/bin/snapshot-controller-definitions/snapshot.storage.k8s.io_volumesnapshots.yaml",
	}
	if len(got) != 3 || got[2] != want {
		t.Errorf("got %v", got)
	}
}
