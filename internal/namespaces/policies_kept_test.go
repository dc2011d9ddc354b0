// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func networkPolicy(namespace, name string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestNetworkPoliciesThatDoNotHoldAtPeersAreTold(t *testing.T) {
	w := newWorld(t, namespace("shop", nil), offloadingWith("shop", v1alpha1.StrategyLocalAndRemote, nil), networkPolicy("shop", "only-web"), networkPolicy("other", "elsewhere"))
	kept := func() *metav1.Condition {
		w.reconcile(offloadingIn("shop"))
		return meta.FindStatusCondition(w.offloading("shop").Status.Conditions, v1alpha1.ConditionNetworkPoliciesKept)
	}
	c := kept()
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonNotEnforced {
		t.Fatalf("the condition is %+v", c)
	}
	for _, want := range []string{"No gateway and no peer enforces", ": only-web.", "a namespace that is not offloaded"} { // cause, names, remedy
		if !strings.Contains(c.Message, want) {
			t.Errorf("it says %q, which lacks %q", c.Message, want)
		}
	}
	if err := w.home.Delete(t.Context(), networkPolicy("shop", "only-web")); err != nil {
		t.Fatal(err)
	}
	if c := kept(); c != nil {
		t.Errorf("without any it is %+v", c)
	}
}

func TestNetworkPoliciesOfPodsThatStayHold(t *testing.T) {
	w := newWorld(t, namespace("shop", nil), offloadingWith("shop", v1alpha1.StrategyLocal, nil), networkPolicy("shop", "only-web"))
	w.reconcile(offloadingIn("shop"))
	if c := meta.FindStatusCondition(w.offloading("shop").Status.Conditions, v1alpha1.ConditionNetworkPoliciesKept); c != nil {
		t.Errorf("it is %+v", c)
	}
}

func TestManyNetworkPoliciesAreToldBriefly(t *testing.T) {
	var objects []client.Object
	for i := range 300 {
		objects = append(objects, networkPolicy("shop", fmt.Sprintf("policy-%03d", i)))
	}
	w := newWorld(t, append(objects, namespace("shop", nil), offloadingWith("shop", v1alpha1.StrategyRemote, nil))...)
	w.reconcile(offloadingIn("shop"))
	c := meta.FindStatusCondition(w.offloading("shop").Status.Conditions, v1alpha1.ConditionNetworkPoliciesKept)
	if c == nil || !strings.Contains(c.Message, "policy-009 and 290 more") {
		t.Errorf("the condition is %+v", c)
	}
}
