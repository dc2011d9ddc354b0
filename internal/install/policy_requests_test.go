// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Amounts of Requests can be read quickly, and are more than nothing.
func TestAmountsOfRequestsAreGuarded(t *testing.T) {
	asking := func(amount string) review {
		return review{by: peer, object: read(t, fmt.Sprintf(`apiVersion: hanse.dev/v1alpha1
kind: Request
metadata: {namespace: hanse-peer-turin, name: shop}
spec: {components: [{name: db, replicas: 1}, {name: web, replicas: 3, resources: {memory: 1Gi, cpu: %s}}]}`, amount))}
	}
	tests := map[string]decision{"more later": {review: review{by: peer, old: asking("1").object, object: asking("2").object}}}
	for _, amount := range []string{"2", `"2"`, "500m", "0.5", "1.5Gi", `"1e3"`, `"1E-3"`} {
		tests[amount] = decision{review: asking(amount)}
	}
	for _, amount := range []string{
		"0", `"0"`, "-1", `"-1"`, `"+1"`, `"1e999999999"`, `"1e-999999999"`, "1.2.3", "much", `""`, "100000000000000000000000",
	} {
		tests[amount] = decision{review: asking(amount), want: "spec.components.resources"}
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), tests)
}

// The Request that a pod uses does not change.
func TestRequestOfAPodIsGuarded(t *testing.T) {
	naming := func(request string) *unstructured.Unstructured {
		shadow := message(t, "ShadowPod", "")
		if err := unstructured.SetNestedField(shadow.Object, request, "spec", "request"); err != nil {
			t.Fatal(err)
		}
		return shadow
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), map[string]decision{
		"one":     {review: review{by: peer, object: naming("shop")}},
		"stays":   {review: review{by: peer, old: naming("shop"), object: naming("shop")}},
		"another": {review: review{by: peer, old: naming("shop"), object: naming("stock")}, want: "spec.request"},
		"none":    {review: review{by: peer, old: naming("shop"), object: message(t, "ShadowPod", "")}, want: "spec.request"},
		"later":   {review: review{by: peer, old: message(t, "ShadowPod", ""), object: naming("shop")}, want: "spec.request"},
	})
}

// The API server gives a policy a budget, and refuses what it cannot be asked about any more.
func TestTheLargestRequestIsWithinTheBudget(t *testing.T) {
	var components []string
	for c := range 32 {
		var resources []string
		for r := range 8 {
			resources = append(resources, fmt.Sprintf("%s-%d: %q", strings.Repeat("r", 98), r, strings.Repeat("1", 19)+"m"))
		}
		components = append(components, fmt.Sprintf("{name: %s-%02d, replicas: 10000, resources: {%s}}", strings.Repeat("n", 60), c, strings.Join(resources, ", ")))
	}
	largest := func(more string) *unstructured.Unstructured {
		return read(t, fmt.Sprintf("{apiVersion: hanse.dev/v1alpha1, kind: Request, metadata: {namespace: hanse-peer-turin, name: shop}, spec: {components: [%s%s]}}",
			strings.Join(components, ", "), more))
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), map[string]decision{
		"the largest":           {review: review{by: peer, object: largest("")}},
		"one that ends badly":   {review: review{by: peer, object: largest(", {name: x, resources: {cpu: -1}}")}, want: "spec.components.resources"},
		"one that is no longer": {review: review{by: peer, old: largest(""), object: largest("")}},
	})
}
