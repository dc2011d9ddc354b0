// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"bufio"
	"encoding/json"
	"io"
	"iter"
	"os"
	"path/filepath"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/hanse-dev/hanse/test/harness"
)

func (c *Cluster) auditLog() string {
	return filepath.Join(harness.StateFolder(), c.Name, "logs", "audit.log")
}

// AuditOffset is how long the audit log is now.
func (c *Cluster) AuditOffset(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(c.auditLog())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// AuditEventsFrom are the events of the cluster's audit log from an offset on. The last line may be half written.
func (c *Cluster) AuditEventsFrom(t *testing.T, offset int64) iter.Seq[*auditv1.Event] {
	t.Helper()
	return func(yield func(*auditv1.Event) bool) {
		log, err := os.Open(c.auditLog())
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = log.Close() }()
		if _, err := log.Seek(offset, io.SeekStart); err != nil {
			t.Error(err)
			return
		}
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			event := &auditv1.Event{}
			if json.Unmarshal(lines.Bytes(), event) == nil && !yield(event) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			t.Error(err)
		}
	}
}

// ResponseCode tells an event of a request that has been answered, and with which code.
func ResponseCode(event *auditv1.Event) (code int32, is bool) {
	if event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil || event.ResponseStatus == nil {
		return 0, false
	}
	return event.ResponseStatus.Code, true
}
