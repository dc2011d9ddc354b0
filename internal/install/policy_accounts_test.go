// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A peer writes its count of what it has used here, and not ours of what we have used at the peer.
func TestAccountsOfOursAreGuarded(t *testing.T) {
	account := func(name, metadata string) *unstructured.Unstructured {
		return read(t, fmt.Sprintf(`apiVersion: hanse.dev/v1alpha1
kind: Account
metadata: {namespace: hanse-peer-turin, name: %s%s}
spec: {entries: [{used: {cpu: "1"}}]}`, name, metadata))
	}
	const lent, borrowed = "lent-2026-11-26", "borrowed-2026-11-26"
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), map[string]decision{
		"its own count":    {review: review{by: peer, old: account(lent, ""), object: account(lent, "")}},
		"ours":             {review: review{by: peer, old: account(borrowed, ""), object: account(borrowed, "")}, want: "metadata.name"},
		"one that stays":   {review: review{by: peer, old: account(lent, ""), object: account(lent, ", finalizers: [a/b]")}, want: "metadata.finalizers"},
		"one that is ours": {review: review{by: peer, old: account(lent, ""), object: account(lent, ", labels: {hanse.dev/managed: x}")}, want: "metadata.labels"},
	})
}
