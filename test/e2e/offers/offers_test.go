// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func awaitClosed(t *testing.T, c *framework.Cluster, provider *framework.Cluster) *corev1.Node {
	t.Helper()
	return c.AwaitVirtualNode(t, provider, "takes no pods", func(node *corev1.Node) bool { return !framework.IsOpen(node) })
}

// awaitAnswer waits until the provider reads this answer of the consumer on its own object, and returns it.
func awaitAnswer(
	t *testing.T, c *framework.Cluster, consumer *framework.Cluster, state v1alpha1.AcknowledgementState, reason string,
) *v1alpha1.Acknowledgement {
	t.Helper()
	var ack *v1alpha1.Acknowledgement
	framework.Eventually(t, fmt.Sprintf("%s reads that %s says %s (%s)", c.Name, consumer.Name, state, reason), func(ctx context.Context) error {
		ad, err := c.OfferFor(ctx, consumer)
		if err != nil {
			return err
		}
		ack = ad.Status.Acknowledgement
		if ack == nil || ack.Sequence < ad.Spec.FullSequence || ack.State != state || ack.Reason != reason {
			return fmt.Errorf("the acknowledgement of message %d is %+v", ad.Spec.FullSequence, ack)
		}
		return nil
	})
	return ack
}

// fromLibrary is a module of policies/library, edited as its comment tells.
func fromLibrary(t *testing.T, name string, edits ...string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(framework.Root, "policies", "library", name+".rego"))
	if err != nil {
		t.Fatal(err)
	}
	edited := string(source)
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(edited, edits[i]) {
			t.Fatalf("module %s does not say %q any more", name, edits[i])
		}
		edited = strings.ReplaceAll(edited, edits[i], edits[i+1])
	}
	return edited
}
