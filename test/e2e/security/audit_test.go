// SPDX-License-Identifier: Apache-2.0

package security

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// writesOfHanse counts the writes of the cluster's own Hanse that the audit log tells of, from an offset on.
func writesOfHanse(t *testing.T, c *framework.Cluster, from int64) int {
	t.Helper()
	count := 0
	for event := range c.AuditEventsFrom(t, from) {
		if _, is := framework.ResponseCode(event); is && !slices.Contains([]string{"get", "list", "watch"}, event.Verb) &&
			strings.HasPrefix(event.User.Username, "system:serviceaccount:"+v1alpha1.SystemNamespace+":") {
			count++
		}
	}
	return count
}

// audited returns an error unless the audit log tells, from an offset on, of a request to the resource by the user that was refused.
func audited(t *testing.T, c *framework.Cluster, from int64, user, resource string) error {
	t.Helper()
	for event := range c.AuditEventsFrom(t, from) {
		code, is := framework.ResponseCode(event)
		if is && event.User.Username == user && event.ObjectRef.Resource == resource && code >= 400 && code < 500 {
			return nil
		}
	}
	return fmt.Errorf("it has no refusal of %s to %s", resource, user)
}
