// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Whoever writes a NetworkPolicy reads that it does not hold for pods at peers.
func TestNetworkPoliciesOfRemotePodsAreTold(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	kept := func(ctx context.Context) (*metav1.Condition, error) {
		offloading := &v1alpha1.NamespaceOffloading{}
		err := lubeck.Get(ctx, client.ObjectKey{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading)
		return meta.FindStatusCondition(offloading.Status.Conditions, v1alpha1.ConditionNetworkPoliciesKept), err
	}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nobody-in"}}
	lubeck.MustCreate(t, policy)
	framework.Eventually(t, "the NamespaceOffloading names the policy", func(ctx context.Context) error {
		said, err := kept(ctx)
		if err == nil && (said == nil || said.Status != metav1.ConditionFalse || !strings.Contains(said.Message, "nobody-in")) {
			return fmt.Errorf("it says %+v", said)
		}
		return err
	})
	if err := lubeck.Delete(ctx, policy); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "nothing is said without one", func(ctx context.Context) error {
		said, err := kept(ctx)
		if err == nil && said != nil {
			return fmt.Errorf("it says %+v", said)
		}
		return err
	})
}
