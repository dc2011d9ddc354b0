// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"testing"

	"github.com/hanse-dev/hanse/internal/policy"
)

func TestWhoNeedNotAskTheDefault(t *testing.T) {
	w := newWorld(t)
	if !w.HasPolicies(policy.Incoming) {
		t.Error("it is said to be the default before anybody has looked")
	}
	w.look()
	if w.HasPolicies(policy.Incoming) {
		t.Error("there are none")
	}
	w.policies("limits", map[string]string{"price.rego": denyDear})
	w.look()
	if !w.HasPolicies(policy.Incoming) || w.HasPolicies(policy.ShadowPod) {
		t.Error("there are some, for one question")
	}
	w.remove("limits")
	w.look()
	if w.HasPolicies(policy.Incoming) {
		t.Error("they are gone")
	}
}
