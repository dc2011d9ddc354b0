// SPDX-License-Identifier: Apache-2.0

package advertisements

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

const (
	auctionNamespace = "bench-auctions"
	auctionRounds    = 5
	auctionDeadline  = 5 * time.Second
	// mostAsked is how many peers an Application asks for offers.
	mostAsked = 100
	// auctionBound is how late after its deadline an auction may end: issue 16.
	auctionBound = 200 * time.Millisecond
)

// Auctions are how soon they end.
type Auctions struct {
	Late  measure.Sample // from the deadline to the end, where one provider is silent
	Early measure.Sample // from the creation of the Application to the end, where all make an offer
}

// hold has Applications ask all providers for offers: some times with one that is silent, and some times with none.
func (e *experiment) hold(ctx context.Context) (Auctions, error) {
	result := Auctions{}
	if e.Count > mostAsked {
		return result, nil
	}
	e.Say("%d providers: holding auctions", e.Count)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: auctionNamespace}},
		&v1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: auctionNamespace, Name: v1alpha1.NamespaceOffloadingName},
			Spec:       v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote},
		},
	} {
		if err := e.consumer.Create(ctx, object); err != nil {
			return result, fmt.Errorf("create %T: %w", object, err)
		}
	}
	closed, err := e.consumer.Observe(ctx, &v1alpha1.ApplicationList{}, nil, lab.Milestone{Name: "closed", Reached: func(o client.Object) bool {
		app, ok := o.(*v1alpha1.Application)
		return ok && app.Status.Auction != nil && app.Status.Auction.Phase == v1alpha1.AuctionClosed
	}})
	if err != nil {
		return result, err
	}
	defer closed.Close()
	for round := range 2 * auctionRounds {
		silent := round < auctionRounds
		began := e.clock.Now()
		app, err := e.auction(ctx, closed, round, silent)
		if err != nil {
			return result, err
		}
		ended := closed.Moments("closed")[app.Name]
		if silent {
			result.Late = append(result.Late, ended.Sub(app.Status.Auction.Deadline.Time))
		} else {
			result.Early = append(result.Early, ended.Sub(began))
		}
	}
	return result, nil
}

// auction has one Application ask, and providers answer, all or all but the first.
func (e *experiment) auction(ctx context.Context, closed *lab.Observer, round int, silent bool) (*v1alpha1.Application, error) {
	app := &v1alpha1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: auctionNamespace, Name: fmt.Sprintf("round-%d", round)},
		Spec: v1alpha1.ApplicationSpec{
			Components: []v1alpha1.ApplicationComponent{{Name: "web", PodLabels: map[string]v1alpha1.LabelValue{"app": "web"}, Replicas: 1}},
			Auction:    &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionAlways, Deadline: &metav1.Duration{Duration: auctionDeadline}},
		},
	}
	if err := e.consumer.Create(ctx, app); err != nil {
		return nil, fmt.Errorf("create Application: %w", err)
	}
	answering, stop := context.WithCancel(ctx)
	defer stop()
	group, answering := errgroup.WithContext(answering)
	first := 1
	if silent {
		first = 2
	}
	group.Go(func() error { return e.answer(answering, first) })
	err := closed.Wait(ctx, "closed", round+1)
	stop()
	if err := errors.Join(err, group.Wait()); err != nil {
		return nil, err
	}
	if err := e.consumer.Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
		return nil, err
	}
	return app, e.consumer.Delete(ctx, app)
}

// answer plays the managers of the providers from the first one on, until ctx ends: it makes an offer for each Quote that has none.
func (e *experiment) answer(ctx context.Context, first int) error {
	for ctx.Err() == nil {
		quotes := &v1alpha1.QuoteList{}
		if err := e.provider.List(ctx, quotes); err != nil && ctx.Err() == nil {
			return err
		}
		for i := range quotes.Items {
			quote := &quotes.Items[i]
			if quote.Answered() || quote.Namespace < v1alpha1.TenantNamespace(clusterID(first)) {
				continue
			}
			offer := v1alpha1.Offer{Interest: 50}
			quote.Status = v1alpha1.QuoteStatus{
				ObservedGeneration: quote.Generation, Whole: &offer, Components: []v1alpha1.ComponentOffer{{Name: "web", Offer: offer}},
			}
			err := e.provider.Status().Update(ctx, quote)
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				return fmt.Errorf("answer a Quote: %w", err)
			}
		}
		_ = lab.Rest(ctx, look) // it ends with ctx
	}
	return nil
}
