package offers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func TestIncomingPolicyCorrects(t *testing.T) {
	framework.Begin(t)
	lubeck.ApplyPolicy(t, "incoming", `package hanse.incoming

patch.availability.cpu := 1 if input.advertisement.availability.cpu > 1
`)
	ack := awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonCorrected)
	if len(ack.Corrections) == 0 || !strings.Contains(strings.Join(ack.Corrections, "\n"), "availability[cpu]") {
		t.Errorf("hamburg is not told what was corrected: %q", ack.Corrections)
	}
	lubeck.AwaitVirtualNode(t, hamburg, "shows the corrected value", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().String() == "1" })
}

func TestPendingNeedsApproval(t *testing.T) {
	ctx := framework.Begin(t)
	lubeck.ApplyPolicy(t, "incoming", `package hanse.incoming

pend contains "the administrator looks at hamburg first" if input.peer.name == "hamburg"
`)
	ack := awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval)
	if !strings.Contains(ack.Message, "looks at hamburg first") {
		t.Errorf("the answer does not say why: %q", ack.Message)
	}
	awaitClosed(t, lubeck, hamburg)
	if out, err := lubeck.Hanse(ctx, "status"); err != nil || !strings.Contains(out, "kubectl hanse accept hamburg") {
		t.Errorf("status does not say what to do: %v\n%s", err, out)
	}
	if _, err := lubeck.Hanse(ctx, "accept", "hamburg"); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementAccepted, v1alpha1.ReasonApproved)
	lubeck.AwaitOpen(t, hamburg)
	// New terms are another offer.
	hamburg.SetPrices(t, "0.03")
	awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval)
	if _, err := lubeck.Hanse(ctx, "refuse", "hamburg"); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonRefusedByAdministrator)
	if _, err := lubeck.Hanse(ctx, "accept", "hamburg"); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitOpen(t, hamburg)
}

func TestPolicyHotReload(t *testing.T) {
	framework.Begin(t)
	refuse := func(peer string) string {
		return fmt.Sprintf("package hanse.incoming\n\ndeny contains \"not today\" if input.peer.name == %q\n", peer)
	}
	lubeck.ApplyPolicy(t, "incoming", refuse("hamburg"))
	awaitClosed(t, lubeck, hamburg)
	lubeck.AwaitOpen(t, bremen)
	lubeck.ApplyPolicy(t, "incoming", refuse("bremen"))
	awaitClosed(t, lubeck, bremen)
	lubeck.AwaitOpen(t, hamburg)
}

func TestBrokenPolicyKeepsLastGood(t *testing.T) {
	ctx := framework.Begin(t)
	lubeck.ApplyPolicy(t, "incoming", "package hanse.incoming\n\ndeny contains \"no\" if input.peer.name == \"hamburg\"\n")
	awaitClosed(t, lubeck, hamburg)
	broken := lubeck.ApplyPolicy(t, "incoming", "package hanse.incoming\n\ndeny contains if nonsense(\n")
	framework.Eventually(t, "the administrator is told", func(ctx context.Context) error {
		out, err := lubeck.Hanse(ctx, "status")
		if err == nil && !strings.Contains(out, "story-incoming/story.rego") {
			err = errors.New(out)
		}
		return err
	})
	events := &corev1.EventList{}
	framework.Eventually(t, "there is a Warning on the ConfigMap", func(ctx context.Context) error {
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
	hamburg.SetPrices(t, "0.01") // a new full message
	awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonRefusedByPolicy)
	awaitClosed(t, lubeck, hamburg)
	if out, err := lubeck.Hanse(ctx, "policy", "show", "incoming"); err != nil || !strings.Contains(out, "story.rego") {
		t.Errorf("policy show: %v\n%s", err, out)
	}
	// What the network could answer is no part of a decision.
	lubeck.ApplyPolicy(t, "incoming", "package hanse.incoming\n\ndeny contains \"no\" if http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1\"}).status_code == 200\n")
	framework.Eventually(t, "a policy that asks the network is not taken", func(ctx context.Context) error {
		out, err := lubeck.Hanse(ctx, "status")
		if err == nil && !strings.Contains(out, "http.send") {
			err = errors.New(out)
		}
		return err
	})
}
