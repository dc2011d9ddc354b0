// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

func TestPriceCeiling(t *testing.T) {
	begin(t)
	lubeck.SetPolicy(t, "incoming", framework.LibraryModule(t, "max-price"))
	hamburg.SetPrices(t, lubeck, "500")
	ack := hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonRefusedByPolicy)
	if !strings.Contains(ack.Message, "cpu") {
		t.Errorf("the refusal does not name the resource that is too expensive: %q", ack.Message)
	}
	lubeck.AwaitClosed(t, hamburg)
	hamburg.SetPrices(t, lubeck, "0.0001")
	hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonAccepted)
	lubeck.AwaitOpen(t, hamburg)
}

func TestPolicyCorrectsAnOffer(t *testing.T) {
	begin(t)
	lubeck.SetPolicy(t, "incoming", `package hanse.incoming

patch.availability.cpu := 1 if input.advertisement.availability.cpu > 1
`)
	ack := hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonCorrected)
	if len(ack.Corrections) == 0 || !strings.Contains(strings.Join(ack.Corrections, "\n"), "availability[cpu]") {
		t.Errorf("hamburg does not get the corrections: %q", ack.Corrections)
	}
	lubeck.AwaitVirtualNode(t, hamburg, "shows the corrected value", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().String() == "1" })
}

func TestPendingOfferNeedsApproval(t *testing.T) {
	begin(t)
	lubeck.SetPolicy(t, "incoming", `package hanse.incoming

pend contains "the administrator looks at hamburg first" if input.peer.name == "hamburg"
`)
	ack := hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval)
	if !strings.Contains(ack.Message, "looks at hamburg first") {
		t.Errorf("the answer has no reason: %q", ack.Message)
	}
	lubeck.AwaitClosed(t, hamburg)
	if out := lubeck.MustHanse(t, "status"); !strings.Contains(out, "kubectl hanse accept hamburg") {
		t.Errorf("status does not say what to do:\n%s", out)
	}
	lubeck.MustHanse(t, "accept", "hamburg")
	hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonApproved)
	lubeck.AwaitOpen(t, hamburg)
	// New terms are another offer.
	hamburg.SetPrices(t, lubeck, "0.03")
	hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval)
	lubeck.MustHanse(t, "refuse", "hamburg")
	hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonRefusedByAdministrator)
	lubeck.MustHanse(t, "accept", "hamburg")
	lubeck.AwaitOpen(t, hamburg)
}

func TestPolicyChangesTakeEffect(t *testing.T) {
	begin(t)
	refuse := func(peer string) string {
		return fmt.Sprintf("package hanse.incoming\n\ndeny contains \"not today\" if input.peer.name == %q\n", peer)
	}
	lubeck.SetPolicy(t, "incoming", refuse("hamburg"))
	lubeck.AwaitClosed(t, hamburg)
	lubeck.AwaitOpen(t, bremen)
	lubeck.SetPolicy(t, "incoming", refuse("bremen"))
	lubeck.AwaitClosed(t, bremen)
	lubeck.AwaitOpen(t, hamburg)
}

func TestBrokenPolicyKeepsTheLastGoodOne(t *testing.T) {
	begin(t)
	lubeck.SetPolicy(t, "incoming", "package hanse.incoming\n\ndeny contains \"no\" if input.peer.name == \"hamburg\"\n")
	lubeck.AwaitClosed(t, hamburg)
	broken := lubeck.SetPolicy(t, "incoming", "package hanse.incoming\n\ndeny contains if nonsense(\n")
	statusContains(t, "test-incoming/test.rego")
	framework.Eventually(t, "the ConfigMap has a Warning", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := lubeck.List(ctx, events, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == broken.Name && e.Type == corev1.EventTypeWarning && e.Reason == v1alpha1.ReasonPolicyInvalid {
				return nil
			}
		}
		return errors.New("there is none")
	})
	hamburg.SetPrices(t, lubeck, "0.01") // a new full message
	hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonRefusedByPolicy)
	lubeck.AwaitClosed(t, hamburg)
	if out := lubeck.MustHanse(t, "policy", "show", "incoming"); !strings.Contains(out, "test.rego") {
		t.Errorf("policy show does not name the module:\n%s", out)
	}
	// A module must not send requests.
	lubeck.SetPolicy(t, "incoming",
		"package hanse.incoming\n\ndeny contains \"no\" if http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1\"}).status_code == 200\n")
	statusContains(t, "http.send")
}

// statusContains waits until kubectl hanse status of lubeck contains a text.
func statusContains(t *testing.T, text string) {
	t.Helper()
	framework.Eventually(t, "kubectl hanse status contains "+text, func(ctx context.Context) error {
		out, err := lubeck.Hanse(ctx, "status")
		if err == nil && !strings.Contains(out, text) {
			err = errors.New(out)
		}
		return err
	})
}

func TestPolicyMakesDifferentOffers(t *testing.T) {
	begin(t)
	hamburg.SetPolicy(t, "outgoing", `package hanse.outgoing

patch.availability.cpu := 1 if input.peer.name == "bremen"

patch.labels["example.org/tier"] := "gold" if input.peer.name == "lubeck"
`)
	bremen.AwaitVirtualNode(t, hamburg, "has one core", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().String() == "1" })
	lubeck.AwaitVirtualNode(t, hamburg, "has tier gold and more than a core", func(node *corev1.Node) bool {
		return node.Labels["example.org/tier"] == "gold" && node.Status.Allocatable.Cpu().MilliValue() > 1000
	})
}
