package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

func (c *cluster) auditLog() string {
	return filepath.Join(harness.StateFolder(), c.Name, "logs", "audit.log")
}

// auditOffset is how long the audit log is now.
func (c *cluster) auditOffset(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(c.auditLog())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// auditedFrom are the events of the cluster's audit log from an offset on. The last line may be half written.
func (c *cluster) auditedFrom(t *testing.T, offset int64) iter.Seq[*auditv1.Event] {
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

// answered tells an event of a request that has been answered, and with which code.
func answered(event *auditv1.Event) (code int32, is bool) {
	if event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil || event.ResponseStatus == nil {
		return 0, false
	}
	return event.ResponseStatus.Code, true
}

// writesOfHanse counts the writes of the cluster's own Hanse that the audit log tells of, from an offset on.
func (c *cluster) writesOfHanse(t *testing.T, from int64) int {
	t.Helper()
	count := 0
	for event := range c.auditedFrom(t, from) {
		if _, is := answered(event); is && !slices.Contains([]string{"get", "list", "watch"}, event.Verb) &&
			strings.HasPrefix(event.User.Username, "system:serviceaccount:"+v1alpha1.SystemNamespace+":") {
			count++
		}
	}
	return count
}

// audited returns an error unless the audit log tells, from an offset on, of a request to the resource by the user that was refused.
func (c *cluster) audited(t *testing.T, from int64, user, resource string) error {
	t.Helper()
	for event := range c.auditedFrom(t, from) {
		code, is := answered(event)
		if is && event.User.Username == user && event.ObjectRef.Resource == resource && code >= 400 && code < 500 {
			return nil
		}
	}
	return fmt.Errorf("it has no refusal of %s to %s", resource, user)
}
