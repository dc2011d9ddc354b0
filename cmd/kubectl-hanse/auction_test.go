// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestAuction(t *testing.T) {
	euros := func(amount string) *v1alpha1.OfferedPrice {
		return &v1alpha1.OfferedPrice{Amount: amount, Currency: "EUR"}
	}
	app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	app.Status.Auction = &v1alpha1.ApplicationAuction{
		Round: 2, Phase: v1alpha1.AuctionClosed, Deadline: metav1.NewTime(now), Message: "front at hamburg, for 0.04 EUR an hour",
		Offers: []v1alpha1.AuctionOffer{
			{
				Peer: "hamburg", Interest: 60, Price: euros("40m"), Won: []string{"front", "back"},
				Components: []v1alpha1.AuctionComponent{{Name: "front", Interest: 70, Price: euros("40m")}, {Name: "back", Interest: 90}},
			},
			{Peer: "bremen", Message: "It has made no offer\x1b by the deadline"},
			{Interest: 1},
		},
	}
	w := newWorld(t, app, &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "idle"}})
	out := &bytes.Buffer{}
	if err := showAuction(t.Context(), out, w.client, client.ObjectKeyFromObject(app), ""); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"Round 2, closed, offers counted until " + now.UTC().Format("2006-01-02T15:04:05Z"), "",
		"CLUSTER INTEREST PRICE COMPONENTS WON MESSAGE",
		"hamburg 60 0.04 EUR front 70 0.04 EUR, back 90 free front, back -",
		"bremen - - - - It has made no offer by the deadline",
		"this cluster 1 free - - -", "",
		"front at hamburg, for 0.04 EUR an hour",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, name := range []string{"idle", "nobody"} {
		if err := showAuction(t.Context(), out, w.client, client.ObjectKey{Namespace: "shop", Name: name}, ""); err == nil || !strings.Contains(err.Error(), "shop/"+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
