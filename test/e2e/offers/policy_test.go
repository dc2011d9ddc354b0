// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"strings"
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestPriceCeilingPolicy(t *testing.T) {
	ctx := framework.Begin(t)
	lubeck.ApplyPolicy(t, "incoming", fromLibrary(t, "max-price"))
	hamburg.SetPrices(t, "500")
	ack := awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonRefusedByPolicy)
	if !strings.Contains(ack.Message, "cpu") {
		t.Errorf("the refusal does not say what is too expensive: %q", ack.Message)
	}
	awaitClosed(t, lubeck, hamburg)
	out, err := lubeck.Hanse(ctx, "policy", "explain", "advertisement", "hamburg")
	if err != nil || !strings.Contains(out, "story-incoming/story.rego") {
		t.Errorf("policy explain does not say which rule decided: %v\n%s", err, out)
	}
	hamburg.SetPrices(t, "0.0001")
	awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonAccepted)
	lubeck.AwaitOpen(t, hamburg)
}
