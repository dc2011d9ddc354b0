// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// newMember is a member that is known through the brokers.
func newMember(name string, brokers ...string) *v1alpha1.Member {
	member := &v1alpha1.Member{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MemberSpec{PublicKey: "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik="},
		Status: v1alpha1.MemberStatus{
			Said: ptr.To(metav1.NewTime(now.Add(-3 * time.Minute))), Expires: ptr.To(metav1.NewTime(now.Add(27 * time.Minute))),
			Offer: &v1alpha1.MemberOffer{Availability: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
			}},
		},
	}
	for _, broker := range brokers {
		member.Status.Brokers = append(member.Status.Brokers, v1alpha1.MemberBroker{Name: broker, Heard: metav1.NewTime(now.Add(-2 * time.Minute))})
	}
	setCurrent(member, metav1.ConditionTrue, "What the member has said last holds")
	return member
}

func setCurrent(member *v1alpha1.Member, is metav1.ConditionStatus, message string) {
	meta.SetStatusCondition(&member.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionCurrent, Status: is, Reason: v1alpha1.ReasonHeard, Message: message, LastTransitionTime: metav1.NewTime(now),
	})
}

func newBroker(name string, introduced metav1.ConditionStatus, message string) *v1alpha1.Peer {
	broker := newPeer(name, v1alpha1.RoleProvider, v1alpha1.RoleBroker)
	setCondition(broker, v1alpha1.ConditionIntroduced, introduced, v1alpha1.ReasonPending, message)
	return broker
}

func TestMembers(t *testing.T) {
	priced := newMember("bremen", "hamburg", "lubeck")
	priced.Status.Offer.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
		corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("10m"),
	}}
	priced.Status.Offer.Labels = map[string]v1alpha1.Text{"region": "north\x1b[31m"}
	priced.Status.Brokers[0].Marks = &v1alpha1.MemberMarks{
		Since: metav1.NewTime(now.Add(-time.Hour)), Quotes: 4, Offers: 3, Declined: 1, OfferTime: &metav1.Duration{Duration: 1200 * time.Millisecond},
		HandOvers: 2, Invitations: 1, Refusals: 1, LongestGap: &metav1.Duration{Duration: 15 * time.Minute},
	}
	silent := newMember("riga", "hamburg")
	setCurrent(silent, metav1.ConditionFalse, "Nothing new came from the member in time")
	left := newMember("visby")
	setCurrent(left, metav1.ConditionFalse, "No broker names the member any more")
	nothing := newMember("stade", "hamburg")
	nothing.Status.Offer, nothing.Status.Said = nil, nil
	friend := newPeer("the-friend", v1alpha1.RoleProvider)
	friend.Spec.ClusterID = "wismar"
	objects := []client.Object{
		newMember("wismar", "hamburg"), priced, silent, left, nothing, friend,
		newBroker("hamburg", metav1.ConditionTrue, ""), newBroker("lubeck", metav1.ConditionFalse, "There is no connection to the broker"),
	}
	for file, test := range map[string]struct {
		objects []client.Object
		output  string
	}{
		"members.txt":           {objects: objects},
		"members-wide.txt":      {objects: objects, output: "wide"},
		"members.json":          {objects: objects, output: "json"},
		"members-no-broker.txt": {},
		"members-none.txt":      {objects: []client.Object{newBroker("hamburg", metav1.ConditionFalse, "There is no connection to the broker")}},
	} {
		t.Run(file, func(t *testing.T) {
			var text bytes.Buffer
			if err := showMembers(soon(t), &text, newWorld(t, test.objects...).client, test.output, now); err != nil {
				t.Fatal(err)
			}
			golden(t, file, text.String())
		})
	}
}
