// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// introductionOf is the Message by which a cluster introduces itself at noon.
func introductionOf(t testing.TB, name string) *v1alpha1.Message {
	t.Helper()
	offer := v1alpha1.MemberOffer{
		Availability: testkit.Resources("4"), Labels: map[string]v1alpha1.Text{"topology.kubernetes.io/region": "north"},
		Prices: &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse("0.05")}},
	}
	signed, err := trust.SignStatement(keyOf(name), trust.Statement{
		Type: trust.Introduction, From: name, Sequence: testkit.Noon.UnixNano(), Expires: testkit.Noon.Add(introductionLife),
	}, offer)
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.Message{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.MembersNamespace, Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec:       v1alpha1.MessageSpec{SignedStatement: *signed},
	}
}

func TestAStatementIsVerifiedOnce(t *testing.T) {
	all := &looks{}
	look := func(now time.Time) *scene {
		seen := &scene{now: now}
		seen.before, seen.readings = all.begin("hamburg")
		return seen
	}
	message := introductionOf(t, "wismar")
	first, err := look(testkit.Noon).read(message)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, message *v1alpha1.Message, now time.Time, verified bool, reason string) {
		t.Helper()
		said, err := look(now).read(message)
		why := &trust.Refusal{}
		if errors.As(err, &why); why.Reason != reason {
			t.Errorf("%s is refused as %q, want %q", what, why.Reason, reason)
		}
		if reason == "" && (said != first) != verified {
			t.Errorf("%s is verified anew: %t, want %t", what, said != first, verified)
		}
	}
	later := testkit.Noon.Add(introductionLife)
	expect("the same", message, testkit.Noon, false, "")
	expect("the same, listed anew", message.DeepCopy(), testkit.Noon, false, "")
	expect("the same, too late", message, later, false, v1alpha1.ReasonExpired)
	expect("the same, by a clock that goes back", message, testkit.Noon, false, "")

	lie := message.DeepCopy()
	lie.Spec = introductionOf(t, "lubeck").Spec
	lie.Spec.Signature = message.Spec.Signature
	expect("another, as the same version", lie, testkit.Noon, true, v1alpha1.ReasonForged)
	expect("the first again", message, testkit.Noon, true, "")

	if first, err = look(testkit.Noon).read(message); err != nil {
		t.Fatal(err)
	}
	look(testkit.Noon) // in which it is not there
	expect("one that was gone", message, testkit.Noon, true, "")
	all.end("hamburg")
	if len(all.byBroker) > 0 {
		t.Error("a broker that was left is remembered")
	}
}

// BenchmarkReadings reads what 1,000 members say, as in the first look at a broker and in each one after it.
func BenchmarkReadings(b *testing.B) {
	var messages []*v1alpha1.Message
	for i := range 1000 {
		messages = append(messages, introductionOf(b, fmt.Sprintf("member-%d", i)))
	}
	for name, again := range map[string]bool{"first": false, "again": true} {
		b.Run(name, func(b *testing.B) {
			all := &looks{}
			for b.Loop() {
				seen := &scene{now: testkit.Noon}
				if seen.before, seen.readings = all.begin("hamburg"); !again {
					seen.before = nil
				}
				for _, message := range messages {
					if _, err := seen.read(message); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
