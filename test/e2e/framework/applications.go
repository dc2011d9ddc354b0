// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// NewApplication is one whose components have a pod each that asks for so much.
func NewApplication(ns string, placement *v1alpha1.ApplicationPlacement, cpu string, components ...string) *v1alpha1.Application {
	app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "shop"}, Spec: v1alpha1.ApplicationSpec{Placement: placement}}
	for _, name := range components {
		app.Spec.Components = append(app.Spec.Components, v1alpha1.ApplicationComponent{
			Name: name, PodLabels: map[string]v1alpha1.LabelValue{"app": v1alpha1.LabelValue(name)}, Replicas: 1,
			Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("16Mi")},
		})
	}
	return app
}

// AwaitApplication waits until the application is in the phase.
func (c *Cluster) AwaitApplication(t *testing.T, app *v1alpha1.Application, phase v1alpha1.ApplicationPhase) *v1alpha1.Application {
	t.Helper()
	Eventually(t, fmt.Sprintf("Application %s is %s", app.Name, phase), func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Phase != phase || app.Status.ObservedGeneration != app.Generation) {
			err = fmt.Errorf("it is %s: %+v", app.Status.Phase, app.Status)
		}
		return err
	})
	return app
}

// ComponentPeers are the peers of the components, in their order.
func ComponentPeers(app *v1alpha1.Application) (peers []string) {
	for _, c := range app.Status.Components {
		peers = append(peers, c.Peer)
	}
	return peers
}

// RequestOf returns our Request for the application at the provider, an error if there is none.
func (c *Cluster) RequestOf(ctx context.Context, app *v1alpha1.Application, consumer *Cluster) (*v1alpha1.Request, error) {
	request := &v1alpha1.Request{}
	return request, c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(consumer.Name), Name: offload.RequestName(app)}, request)
}

// ExpectComponentAt checks that the pod of the component runs at the peer, and waits until the peer counts it as one that uses what is
// reserved.
func (c *Cluster) ExpectComponentAt(t *testing.T, app *v1alpha1.Application, name, peer string) {
	t.Helper()
	pod := c.AwaitReadyPods(t, app.Namespace, name, 1)[0]
	if pod.Spec.NodeName != v1alpha1.VirtualNodeName(peer) {
		t.Errorf("%s is on %s, and its component at %s", name, pod.Spec.NodeName, peer)
	}
	provider := map[string]*Cluster{"hamburg": Hamburg, "bremen": Bremen, "wismar": Wismar}[peer]
	Eventually(t, "the pod uses what is reserved at "+peer, func(ctx context.Context) error {
		request, err := provider.RequestOf(ctx, app, c)
		if err == nil && (request.Status.Phase != v1alpha1.RequestAcknowledged || request.Status.Used.Cpu().IsZero()) {
			err = fmt.Errorf("it says %+v", request.Status)
		}
		return err
	})
}

// SetCorePrices has a core cost so much in hamburg and in bremen, and waits until they say so and lubeck knows: what is placed before stays where
// it is.
func SetCorePrices(t *testing.T, atHamburg, atBremen string) {
	t.Helper()
	for provider, price := range map[*Cluster]string{Hamburg: atHamburg, Bremen: atBremen} {
		provider.SetPrices(t, price)
		want := resource.MustParse(price)
		Eventually(t, "lubeck knows the price of "+provider.Name, func(ctx context.Context) error {
			offer, offerErr := provider.OfferFor(ctx, Lubeck)
			known, err := Lubeck.ReceivedOffer(ctx, provider) // which may be of an earlier story
			if err := errors.Join(offerErr, err); err != nil {
				return err
			}
			for _, prices := range []*v1alpha1.Prices{offer.Spec.Prices, known.Spec.Prices} {
				if prices == nil || want.Cmp(prices.PerHour[corev1.ResourceCPU]) != 0 {
					return fmt.Errorf("it says %+v, and lubeck knows %+v", offer.Spec.Prices, known.Spec.Prices)
				}
			}
			return nil
		})
	}
}

// NewAuctionedApplication is an application of two components that may cost so much at most, and whose auction waits a minute for offers at most: it ends when all have answered.
func NewAuctionedApplication(ns, most string, when v1alpha1.AuctionWhen) *v1alpha1.Application {
	app := NewApplication(ns, &v1alpha1.ApplicationPlacement{MaxPrice: &v1alpha1.Price{Amount: resource.MustParse(most), Currency: "EUR"}}, "50m", "front", "back")
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: when, Deadline: &metav1.Duration{Duration: time.Minute}}
	return app
}

// AuctionOfferOf is what the peer has offered in the last auction of the application.
func AuctionOfferOf(t *testing.T, app *v1alpha1.Application, peer string) v1alpha1.AuctionOffer {
	t.Helper()
	if app.Status.Auction == nil {
		t.Fatalf("there was no auction: %+v", app.Status)
	}
	i := slices.IndexFunc(app.Status.Auction.Offers, func(o v1alpha1.AuctionOffer) bool { return o.Peer == peer })
	if i < 0 {
		t.Fatalf("%s took no part: %+v", peer, app.Status.Auction)
	}
	return app.Status.Auction.Offers[i]
}

// ExpectPriceKept checks that the provider takes that price of the consumer for the application.
func (c *Cluster) ExpectPriceKept(t *testing.T, price string, app *v1alpha1.Application, consumer *Cluster) {
	t.Helper()
	request, err := c.RequestOf(t.Context(), app, consumer)
	if err != nil || request.Status.Price == nil || request.Status.Price.Amount.String() != price {
		t.Errorf("%s asks for %+v (%v)", c.Name, request.Status.Price, err)
	}
}

// ExpectOutput checks that kubectl, or with the first word hanse its plugin, prints these texts.
func (c *Cluster) ExpectOutput(t *testing.T, want []string, args ...string) {
	t.Helper()
	run := c.Kubectl
	if args[0] == "hanse" {
		run, args = c.Hanse, args[1:]
	}
	out, err := run(t.Context(), args...)
	for _, text := range want {
		if err != nil || !strings.Contains(out, text) {
			t.Errorf("%v does not show %q: %v\n%s", args, text, err, out)
		}
	}
}
