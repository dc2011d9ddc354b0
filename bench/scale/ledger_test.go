// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/bench/audit"
)

func TestLedgerFollowsWhatHanseAsks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{logs: map[string]*audit.Log{"provider": log}, watches: map[string]audit.Watches{"provider": {}}}
	lines := `{"auditID":"1","stage":"ResponseStarted","verb":"watch","userAgent":"hanse-kubelet/v1","objectRef":{"resource":"shadowpods"}}
{"auditID":"2","stage":"ResponseStarted","verb":"watch","userAgent":"kwok/v1","objectRef":{"resource":"pods"}}
{"auditID":"3","stage":"ResponseComplete","verb":"patch","userAgent":"hanse-manager/v1","objectRef":{"resource":"shadowpods"}}
`
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	requests, err := l.next()
	if err != nil {
		t.Fatal(err)
	}
	if len(requests["provider"]) != 2 {
		t.Errorf("got %v, want what Hanse asked for alone", requests)
	}
	open, err := l.open()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"provider: hanse-kubelet": 1, "provider: hanse-manager": 0}, open); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
