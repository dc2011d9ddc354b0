// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// offerOf is our copy of what a peer offers, answered.
func offerOf(peer, cluster string, state v1alpha1.AcknowledgementState, reason string) *v1alpha1.Advertisement {
	return &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(peer), Name: cluster},
		Spec: v1alpha1.AdvertisementSpec{
			ClusterID: cluster, Timestamp: metav1.Now(), TimeToLive: metav1.NewTime(time.Now().Add(time.Hour)),
		},
		Status: v1alpha1.AdvertisementStatus{
			Acknowledgement: &v1alpha1.Acknowledgement{State: state, Reason: reason, Message: "because"},
		},
	}
}

// obey is a manager that answers an advertisement as its annotation says.
func obey(ctx context.Context, c client.Client, written client.Object) error {
	ad, isAd := written.(*v1alpha1.Advertisement)
	if !isAd {
		return nil
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(ad), ad); err != nil {
		return err
	}
	ack := &v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted, Reason: v1alpha1.ReasonApproved}
	if ad.Annotations[v1alpha1.AnnotationDecision] == v1alpha1.DecisionRefuse {
		ack = &v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementRefused, Reason: v1alpha1.ReasonRefusedByAdministrator}
	}
	ad.Status.Acknowledgement = ack
	return c.Update(ctx, ad)
}

type decisionCase struct {
	verb, of string
	state    v1alpha1.AcknowledgementState
	reason   string
	expired  bool
	want     string // the decision
	says     string // "" if it is fine
}

func TestAnAdministratorDecides(t *testing.T) {
	const accepted, pending, refused = v1alpha1.AcknowledgementAccepted, v1alpha1.AcknowledgementPending, v1alpha1.AcknowledgementRefused
	for name, test := range map[string]decisionCase{
		"accept a pending one":                  {verb: "accept", state: pending, reason: v1alpha1.ReasonPendingApproval, want: v1alpha1.DecisionAccept},
		"accept by the id of the cluster":       {verb: "accept", of: "hamburg-id", state: pending, want: v1alpha1.DecisionAccept},
		"accept what was refused by mistake":    {verb: "accept", state: refused, reason: v1alpha1.ReasonRefusedByAdministrator, want: v1alpha1.DecisionAccept},
		"accept what is accepted":               {verb: "accept", state: accepted, reason: v1alpha1.ReasonAccepted, says: "accepted already"},
		"accept what a policy refuses":          {verb: "accept", state: refused, reason: v1alpha1.ReasonRefusedByPolicy, says: "RefusedByPolicy: because"},
		"accept what has expired":               {verb: "accept", state: pending, expired: true, says: "it has expired"},
		"accept what nobody has looked at":      {verb: "accept", says: "not looked at it yet"},
		"accept what is not there":              {verb: "accept", of: "bremen", says: "no advertisement of bremen"},
		"accept of a cluster that is not known": {verb: "accept", of: "riga", says: "kubectl hanse status"},
		"refuse a pending one":                  {verb: "refuse", state: pending, want: v1alpha1.DecisionRefuse},
		"refuse what is in use":                 {verb: "refuse", state: accepted, want: v1alpha1.DecisionRefuse},
		"refuse what has expired":               {verb: "refuse", state: accepted, expired: true, says: "it has expired"},
	} {
		t.Run(name, test.run)
	}
}

func (c decisionCase) run(t *testing.T) {
	peer := newPeer("hamburg", v1alpha1.RoleProvider)
	peer.Spec.ClusterID = "hamburg-id"
	ad := offerOf("hamburg", "hamburg-id", c.state, c.reason)
	if c.state == "" {
		ad.Status.Acknowledgement = nil
	}
	if c.expired {
		ad.Spec.TimeToLive = metav1.NewTime(time.Now().Add(-time.Second))
	}
	w := newWorld(t, peer, ad, newPeer("bremen", v1alpha1.RoleProvider))
	w.manager = obey
	command, out, _ := listener()
	flags := &writeFlags{waitFlags: waitFlags{wait: true}}
	err := verbNamed(t, c.verb).run(soon(t), command, w.client, flags, orElse(c.of, "hamburg"))
	said := out.String()
	if err != nil {
		said = err.Error()
	}
	if (err != nil) != (c.says != "") || !strings.Contains(said, orElse(c.says, "The advertisement of hamburg is ")) {
		t.Errorf("the user is told %q (%v), want %q", said, err, c.says)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ad), ad); err != nil {
		t.Fatal(err)
	}
	if got := ad.Annotations[v1alpha1.AnnotationDecision]; got != c.want {
		t.Errorf("decision %q, want %q", got, c.want)
	}
}

func TestADecisionThatHasNoEffectSaysSo(t *testing.T) {
	testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(t, newPeer("hamburg", v1alpha1.RoleProvider),
			offerOf("hamburg", "hamburg", v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval))
		command, _, _ := listener()
		flags := &writeFlags{waitFlags: waitFlags{wait: true}}
		err := verbNamed(t, "accept").run(ctx, command, w.client, flags, "hamburg")
		if err == nil || !strings.Contains(err.Error(), "still Pending: PendingApproval because") {
			t.Errorf("error %v", err)
		}
	})
}

func TestADecisionOnTermsThatChangeMeanwhileIsVoid(t *testing.T) {
	ad := offerOf("hamburg", "hamburg", v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval)
	w := newWorld(t, newPeer("hamburg", v1alpha1.RoleProvider), ad)
	w.manager = func(ctx context.Context, c client.Client, _ client.Object) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(ad), ad); err != nil {
			return err
		}
		delete(ad.Annotations, v1alpha1.AnnotationDecision)
		return c.Update(ctx, ad)
	}
	command, _, _ := listener()
	flags := &writeFlags{waitFlags: waitFlags{wait: true}}
	err := verbNamed(t, "accept").run(soon(t), command, w.client, flags, "hamburg")
	if err == nil || !strings.Contains(err.Error(), "changed its terms") {
		t.Errorf("error %v", err)
	}
}

func TestDecisionDryRunWritesNothing(t *testing.T) {
	ad := offerOf("hamburg", "hamburg", v1alpha1.AcknowledgementPending, v1alpha1.ReasonPendingApproval)
	w := newWorld(t, newPeer("hamburg", v1alpha1.RoleProvider), ad)
	command, out, _ := listener()
	flags := &writeFlags{dryRunFlags: dryRunFlags{dryRun: "client"}}
	if err := verbNamed(t, "accept").run(soon(t), command, w.client, flags, "hamburg"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "hanse.dev/decision: Accept") {
		t.Errorf("printed %q", out)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ad), ad); err != nil || len(ad.Annotations) > 0 {
		t.Errorf("annotations %v, %v", ad.Annotations, err)
	}
}
