// SPDX-License-Identifier: Apache-2.0

// Package virtualkubelet runs the end-to-end suite of the virtual-kubelet library against a virtual node of ours. It is a
// module of its own, since that library is nothing that Hanse itself needs. The story TestVirtualKubeletSuite in test/e2e
// prepares a cluster for it and starts it.
package virtualkubelet

import (
	"os"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/test/e2e"
)

func TestVirtualKubelet(t *testing.T) {
	namespace, node := os.Getenv("SUITE_NAMESPACE"), os.Getenv("SUITE_NODE")
	if namespace == "" || node == "" {
		t.Skip("needs a cluster: the story TestVirtualKubeletSuite of make e2e runs it")
	}
	e2e.NewEndToEndTestSuite(e2e.EndToEndTestSuiteConfig{
		Kubeconfig: relay(t, os.Getenv("KUBECONFIG"), namespace, node), Namespace: namespace, NodeName: node, WatchTimeout: time.Minute,
	}).Run(t)
}
