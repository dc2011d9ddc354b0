// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	const complete = `"stage":"ResponseComplete",`
	tests := []struct {
		name, line string
		want       []Request
	}{
		{
			name: "a write of ours",
			line: `{` + complete + `"verb":"patch","userAgent":"hanse-kubelet/v1 (linux)","user":{"username":"system:serviceaccount:hanse-system:hanse-kubelet"},` +
				`"objectRef":{"resource":"pods","subresource":"status","namespace":"home"},"responseStatus":{"code":200}}`,
			want: []Request{{Agent: "hanse-kubelet", Verb: "patch", Resource: "pods/status", Namespace: "home"}},
		},
		{
			name: "a conflict is a write that failed",
			line: `{` + complete + `"verb":"update","userAgent":"hanse-manager/v1","objectRef":{"resource":"shadowpods","namespace":"n"},"responseStatus":{"code":409}}`,
			want: []Request{{Agent: "hanse-manager", Verb: "update", Resource: "shadowpods", Namespace: "n", Failed: true}},
		},
		{
			name: "a component of Kubernetes is known by its user",
			line: `{` + complete + `"verb":"create","userAgent":"kubernetes-v1.37.1/v1.37.1 (linux/amd64) kubernetes/0/scheduler","user":{"username":"system:kube-scheduler"},` +
				`"objectRef":{"resource":"pods","subresource":"binding","namespace":"n"},"responseStatus":{"code":201}}`,
			want: []Request{{Agent: "kube-scheduler", Verb: "create", Resource: "pods/binding", Namespace: "n"}},
		},
		{
			name: "a list",
			line: `{` + complete + `"auditID":"1","verb":"list","requestURI":"/api/v1/pods?limit=500","userAgent":"a","objectRef":{"resource":"pods"}}`,
			want: []Request{{ID: "1", Agent: "a", Verb: "list", Resource: "pods"}},
		},
		{
			name: "a further page of a list",
			line: `{` + complete + `"verb":"list","requestURI":"/api/v1/pods?continue=xyz&limit=500","userAgent":"a","objectRef":{"resource":"pods"}}`,
			want: []Request{{Agent: "a", Verb: "list", Resource: "pods", Page: true}},
		},
		{
			name: "a watch that begins with what is there",
			line: `{"stage":"ResponseStarted","verb":"watch","requestURI":"/api/v1/pods?sendInitialEvents=true&watch=true","userAgent":"a","objectRef":{"resource":"pods"}}`,
			want: []Request{{Agent: "a", Verb: "watch", Resource: "pods", Begins: true, All: true}},
		},
		{
			name: "the end of a watch",
			line: `{` + complete + `"verb":"watch","requestURI":"/api/v1/pods?watch=true","userAgent":"a","objectRef":{"resource":"pods"}}`,
			want: []Request{{Agent: "a", Verb: "watch", Resource: "pods"}},
		},
		{name: "a read of one object", line: `{` + complete + `"verb":"get","objectRef":{"resource":"pods"}}`},
		{name: "a lease", line: `{` + complete + `"verb":"update","objectRef":{"resource":"leases","namespace":"n"}}`},
		{name: "a request that is not done", line: `{"stage":"ResponseStarted","verb":"create","objectRef":{"resource":"pods"}}`},
		{name: "a question", line: `{` + complete + `"verb":"create","objectRef":{"resource":"subjectaccessreviews","apiGroup":"authorization.k8s.io"}}`},
		{name: "a token", line: `{` + complete + `"verb":"create","objectRef":{"resource":"serviceaccounts","subresource":"token"}}`},
		{name: "no object", line: `{` + complete + `"verb":"create"}`},
		{name: "an empty line", line: ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Read(strings.NewReader(tt.line + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := Read(strings.NewReader("{broken\n")); err == nil {
		t.Error("a broken line is no error")
	}
}

func TestLogIsReadWhileItGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	line := `{"stage":"ResponseComplete","verb":"create","userAgent":"bench/1","objectRef":{"resource":"pods"}}`
	grow := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	grow(line + "\n")
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		grown string
		want  int
	}{{"", 0}, {line + "\n" + line + "\n" + line[:20], 2}, {line[20:], 0}, {"\n", 1}} {
		grow(step.grown)
		writes, err := log.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(writes) != step.want {
			t.Errorf("after %q: %d writes, want %d", step.grown, len(writes), step.want)
		}
	}
}
