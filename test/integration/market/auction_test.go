// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// auctionedApplication returns an Application of two components with a price ceiling in euros,
// whose auction waits a minute for offers at most: it ends when all providers have answered.
func auctionedApplication(ns, maxPrice string, when v1alpha1.AuctionWhen) *v1alpha1.Application {
	ceiling := &v1alpha1.Price{Amount: resource.MustParse(maxPrice), Currency: "EUR"}
	app := framework.Application(ns, &v1alpha1.ApplicationPlacement{MaxPrice: ceiling}, "50m", "front", "back")
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: when, Deadline: &metav1.Duration{Duration: time.Minute}}
	return app
}

// setBids sets the list price of a core to 0.02 in both providers. In auctions both offer a core for 0.01, with these interests.
func setBids(t *testing.T, ofHamburg, ofBremen int) {
	t.Helper()
	setCorePrices(t, "0.02", "0.02")
	for provider, interest := range map[*framework.Cluster]int{hamburg: ofHamburg, bremen: ofBremen} {
		setPolicy(t, provider, "quote", fmt.Sprintf(
			"package hanse.quote\n\ninterest := %d\n\nprices := {\"currency\": \"EUR\", \"perHour\": {\"cpu\": 0.01}}\n", interest))
	}
}

// awaitAuction waits until the auction of the Application is closed.
func awaitAuction(t *testing.T, app *v1alpha1.Application) {
	t.Helper()
	framework.Eventually(t, "the auction is closed", func(ctx context.Context) error {
		err := lubeck.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Auction == nil || app.Status.Auction.Phase != v1alpha1.AuctionClosed || app.Status.ObservedGeneration != app.Generation) {
			err = fmt.Errorf("the status is %+v", app.Status)
		}
		return err
	})
}

// offerOf returns the offer of the peer in the last auction of the Application.
func offerOf(t *testing.T, app *v1alpha1.Application, peer string) v1alpha1.AuctionOffer {
	t.Helper()
	if app.Status.Auction == nil {
		t.Fatalf("there was no auction: %+v", app.Status)
	}
	i := slices.IndexFunc(app.Status.Auction.Offers, func(o v1alpha1.AuctionOffer) bool { return o.Peer == peer })
	if i < 0 {
		t.Fatalf("%s is not in the auction: %+v", peer, app.Status.Auction)
	}
	return app.Status.Auction.Offers[i]
}

// TestOffersLeaveTableAlone: offers in an auction do not change advertisements. Each provider goes on to advertise all free capacity of
// its nodes for the list price, although it offers the Application for half of that price.
func TestOffersLeaveTableAlone(t *testing.T) {
	begin(t)
	setBids(t, 60, 40)
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		framework.Eventually(t, provider.Name+" advertises all free capacity", func(ctx context.Context) error { return advertisesAll(ctx, provider, "0.02") })
	}
	app := auctionedApplication(offloadedNamespace(t, v1alpha1.StrategyRemote), "0.0001", v1alpha1.AuctionIfNeeded)
	lubeck.MustCreate(t, app)
	awaitAuction(t, app)
	for peer, interest := range map[string]int32{"hamburg": 60, "bremen": 40} {
		if o := offerOf(t, app, peer); o.Interest != interest || o.Price == nil || o.Price.Amount != "1m" || len(o.Won) > 0 {
			t.Errorf("%s offers %+v", peer, o)
		}
	}
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		if err := advertisesAll(t.Context(), provider, "0.02"); err != nil {
			t.Errorf("%s: %v", provider.Name, err)
		}
	}
	lubeck.DeleteAndWait(t, app)
}

// advertisesAll returns an error unless the provider advertises to lubeck all that pods leave free on its nodes, for the price of a core.
func advertisesAll(ctx context.Context, provider *framework.Cluster, core string) error {
	free, err := provider.FreeCapacity(ctx)
	if err != nil {
		return err
	}
	ad, err := provider.OfferTo(ctx, lubeck)
	if err != nil {
		return err
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if advertised, want := ad.Spec.Availability[name], free[name]; advertised.Cmp(want) != 0 {
			return fmt.Errorf("it advertises %s %s, and %s are free", &advertised, name, &want)
		}
	}
	want := resource.MustParse(core)
	if ad.Spec.Prices == nil || want.Cmp(ad.Spec.Prices.PerHour[corev1.ResourceCPU]) != 0 {
		return fmt.Errorf("it advertises the prices %+v", ad.Spec.Prices)
	}
	return nil
}

// TestInterestZero: providers whose policies have no interest in an Application answer so. The auction is closed before its deadline, and
// no provider gets a Request.
func TestInterestZero(t *testing.T) {
	begin(t)
	setBids(t, 0, 0)
	app := auctionedApplication(offloadedNamespace(t, v1alpha1.StrategyRemote), "0.0015", v1alpha1.AuctionIfNeeded)
	// With a deadline that no test reaches, only the answers can close the auction.
	app.Spec.Auction.Deadline = &metav1.Duration{Duration: 5 * time.Minute}
	lubeck.MustCreate(t, app)
	awaitAuction(t, app)
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		if o := offerOf(t, app, provider.Name); o.Interest != 0 || len(o.Won) > 0 || !strings.Contains(o.Message, "policies") {
			t.Errorf("%s offers %+v", provider.Name, o)
		}
		if request, err := provider.RequestOf(t.Context(), app, lubeck); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%s has the Request %+v (%v)", provider.Name, request, err)
		}
	}
	if app.Status.Phase != v1alpha1.ApplicationUnplaced || app.Status.Conditions[0].Reason != v1alpha1.ReasonNoClusterFits {
		t.Errorf("the status is %+v", app.Status)
	}
	if time.Until(app.Status.Auction.Deadline.Time) <= 0 {
		t.Errorf("the auction was not closed before its deadline: %+v", app.Status.Auction)
	}
	lubeck.DeleteAndWait(t, app)
}

// TestTiesByInterest: of two offers for the same price the one with more interest wins, also in an auction without a lookup before it.
func TestTiesByInterest(t *testing.T) {
	begin(t)
	setBids(t, 60, 90)
	app := auctionedApplication(offloadedNamespace(t, v1alpha1.StrategyRemote), "1", v1alpha1.AuctionAlways)
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := framework.ComponentPeers(app); !slices.Equal(got, []string{"bremen", "bremen"}) {
		t.Errorf("it is placed at %v: %+v", got, app.Status.Auction)
	}
	for peer, interest := range map[string]int32{"hamburg": 60, "bremen": 90} {
		if o := offerOf(t, app, peer); o.Interest != interest || o.Price == nil || o.Price.Amount != "1m" {
			t.Errorf("%s offers %+v", peer, o)
		}
	}
	lubeck.DeleteAndWait(t, app)
}

// TestAuctionDeadline: a provider that does not answer delays an auction until its deadline only. Its late answer changes nothing.
func TestAuctionDeadline(t *testing.T) {
	begin(t)
	ctx := t.Context()
	app := framework.Application(offloadedNamespace(t, v1alpha1.StrategyRemote), nil, "50m", "front")
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionAlways, Deadline: &metav1.Duration{Duration: 3 * time.Second}}
	t.Run("no answer", func(t *testing.T) {
		bremen.PauseServer(t, "manager")
		lubeck.MustCreate(t, app)
		lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
		if got := framework.ComponentPeers(app); !slices.Equal(got, []string{"hamburg"}) {
			t.Errorf("it is placed at %v", got)
		}
		since := app.Status.Conditions[0].LastTransitionTime.Sub(app.Status.Auction.Deadline.Time)
		t.Logf("placed %s after the deadline, to the second", since)
		if since < 0 {
			t.Errorf("it was placed %s before the deadline", -since)
		}
		if o := offerOf(t, app, "bremen"); !strings.Contains(o.Message, "by the deadline") {
			t.Errorf("bremen has offered %+v", o)
		}
	})
	framework.Eventually(t, "bremen answers after the deadline", func(ctx context.Context) error {
		quote := &v1alpha1.Quote{}
		key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: offload.RequestName(app)}
		err := bremen.Get(ctx, key, quote)
		if err == nil && !quote.Answered() {
			err = fmt.Errorf("the Quote has the status %+v", quote.Status)
		}
		return err
	})
	now := &v1alpha1.Application{}
	if err := lubeck.Get(ctx, client.ObjectKeyFromObject(app), now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(app.Status, now.Status); diff != "" {
		t.Errorf("the late answer has changed the status (-before +after):\n%s", diff)
	}
	lubeck.DeleteAndWait(t, app)
}
