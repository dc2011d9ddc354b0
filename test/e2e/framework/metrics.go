// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"os"
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
