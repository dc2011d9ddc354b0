// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Amounts of Applications can be read quickly, whoever writes them, and Hanse changes no spec of them.
func TestApplicationsAreGuarded(t *testing.T) {
	asking := func(by, cpu, price string) review {
		return review{by: by, object: read(t, fmt.Sprintf(`apiVersion: hanse.dev/v1alpha1
kind: Application
metadata: {namespace: shop, name: shop}
spec: {components: [{name: db, replicas: 1, podLabels: {app: db}},
  {name: web, replicas: 3, podLabels: {app: web}, resources: {memory: 1Gi, cpu: %s}, maxPrice: {amount: %s, currency: EUR}}]}`, cpu, price))}
	}
	tests := map[string]decision{}
	for _, amount := range []string{"2", `"2"`, "500m", "0.5", `"1e3"`} {
		tests[amount] = decision{review: asking("jane", amount, "0.25")}
	}
	tests["for nothing"] = decision{review: asking("jane", "1", "0")}
	for _, amount := range []string{"0", "-1", `"1e999999999"`, "much", "100000000000000000000000"} {
		tests[amount] = decision{review: asking("jane", amount, "0.25"), want: "spec.components"}
	}
	for _, amount := range []string{"-1", `"1e999999999"`, "dear"} {
		tests["for "+amount] = decision{review: asking("jane", "1", amount), want: "spec.components"}
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-applications"), tests)

	before, after, held := asking(manager, "1", "1"), asking(manager, "2", "1"), asking(manager, "1", "1")
	held.object.(metav1.Object).SetFinalizers([]string{"hanse.dev/application"}) //nolint:forcetypeassert // it was read as one
	expectDecisions(t, validatingPolicy(t, "hanse-own-applications"), map[string]decision{
		"a finalizer": {review: review{by: manager, old: before.object, object: held.object}},
		"the spec":    {review: review{by: manager, old: before.object, object: after.object}, want: "Hanse changes of an Application"},
	})
}
