// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// IntFromEnvironment returns the number that the environment variable has, or else the usual one.
func IntFromEnvironment(t *testing.T, variable string, usual int) int {
	t.Helper()
	set := os.Getenv(variable)
	if set == "" {
		return usual
	}
	number, err := strconv.Atoi(set)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// ManagerMetrics are those of the manager.
func (c *Cluster) ManagerMetrics(ctx context.Context) (string, error) {
	pods := &corev1.PodList{}
	err := c.List(ctx, pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})
	if err != nil || len(pods.Items) == 0 {
		return "", fmt.Errorf("%d managers: %w", len(pods.Items), err)
	}
	return c.Kubectl(ctx, "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/metrics", v1alpha1.SystemNamespace, pods.Items[0].Name))
}

// RefusedStatements is how many statements the manager has refused for the reason, of those from the peer or through it.
func (c *Cluster) RefusedStatements(ctx context.Context, t *testing.T, peer, reason string) (count int) {
	t.Helper()
	out, err := c.ManagerMetrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(fmt.Sprintf(`(?m)^hanse_statements_refused_total\{peer=%q,reason=%q\} (\d+)`, peer, reason))
	if found := metric.FindStringSubmatch(out); found != nil {
		if err := json.Unmarshal([]byte(found[1]), &count); err != nil {
			t.Fatal(err)
		}
	}
	return count
}
