// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnswersToMessages(t *testing.T) {
	var conditions []metav1.Condition
	if Answer(&conditions, ReasonExportRefused, "", 1); len(conditions) > 0 {
		t.Errorf("of a message that is taken they say %v", conditions)
	}
	Answer(&conditions, ReasonExportRefused, "not an address of the peer", 2)
	said := Objection(conditions, ConditionAccepted)
	if said == nil || said.Reason != ReasonExportRefused || said.Message != "not an address of the peer" || said.ObservedGeneration != 2 {
		t.Errorf("the objection is %v", said)
	}
	if got := Objection(conditions, ConditionApplied); got != nil {
		t.Errorf("another condition says %v", got)
	}
	if Answer(&conditions, ReasonExportRefused, "", 3); len(conditions) > 0 {
		t.Errorf("when it is taken after all they say %v", conditions)
	}
	accepted := []metav1.Condition{{Type: ConditionAccepted, Status: metav1.ConditionTrue}}
	if got := Objection(accepted, ConditionAccepted); got != nil {
		t.Errorf("what is accepted is objected to: %v", got)
	}
}
