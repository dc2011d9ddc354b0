// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

const tooLarge = "The Request is too large to be signed: name fewer components, or shorter resources"

// applications keeps what is agreed for each Application.
type applications struct {
	Config

	metadata  cache.Cache // of workloads in all namespaces; nil without a manager
	workloads sync.Map    // namespace with applications that are as large as they → what was last read of them
}

// Reconcile brings one Application a step further.
func (a *applications) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	app, err := local.Find(ctx, a.Client, request.NamespacedName, &v1alpha1.Application{})
	if err != nil || app == nil {
		a.workloads.Delete(request.Namespace) // nobody else may need it
		return reconcile.Result{}, err
	}
	if app.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(app, v1alpha1.FinalizerApplication) {
		return reconcile.Result{}, a.hold(ctx, app)
	}
	seen, err := a.observe(ctx, app)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, err := seen.decide()
	if err != nil {
		return reconcile.Result{}, err
	}
	before := app.Status.DeepCopy()
	if err := a.store(ctx, app, &status); err != nil {
		return reconcile.Result{}, err
	}
	seen.countDoubts(before, &status)
	return a.carryOut(ctx, seen, status)
}

// carryOut brings about what was decided.
func (a *applications) carryOut(ctx context.Context, seen *scene, status v1alpha1.ApplicationStatus) (reconcile.Result, error) {
	a.invite(ctx, seen, &status)
	if err := a.handOver(ctx, seen, &status); err != nil {
		return reconcile.Result{}, err
	}
	asked, err := a.ask(ctx, seen, &status)
	if err != nil {
		return busy(err)
	}
	if len(seen.refused) > 0 {
		for peer, why := range seen.refused {
			seen.refuse(&status, peer, why)
		}
		return reconcile.Result{}, a.store(ctx, seen.app, &status) // what is written asks for another look
	}
	if err := a.evictLost(ctx, seen, &status); err != nil {
		return reconcile.Result{}, err
	}
	if slices.Equal(asked, status.AskedAt) {
		return reconcile.Result{RequeueAfter: seen.again(&status)}, a.letGo(ctx, seen, &status)
	}
	status.AskedAt = asked
	return reconcile.Result{RequeueAfter: seen.again(&status)}, a.store(ctx, seen.app, &status)
}

// busy has a peer that takes no further calls asked later.
func busy(err error) (reconcile.Result, error) {
	var busy *peers.BusyError
	if errors.As(err, &busy) {
		return reconcile.Result{RequeueAfter: busy.After}, nil
	}
	return reconcile.Result{}, err
}

// hold sees to it that the Application is not gone before its Requests are.
func (a *applications) hold(ctx context.Context, app *v1alpha1.Application) error {
	held := app.DeepCopy()
	controllerutil.AddFinalizer(held, v1alpha1.FinalizerApplication)
	return a.patch(ctx, app, held)
}

// letGo lets an Application that is deleted go when nothing is left of it at peers, or can be: a reservation that nobody renews ends.
func (a *applications) letGo(ctx context.Context, seen *scene, status *v1alpha1.ApplicationStatus) error {
	app := seen.app
	if app.DeletionTimestamp.IsZero() || len(status.AskedAt) > 0 && seen.now.Sub(app.DeletionTimestamp.Time) < v1alpha1.ReservationTime {
		return nil
	}
	free := app.DeepCopy()
	if !controllerutil.RemoveFinalizer(free, v1alpha1.FinalizerApplication) {
		return nil
	}
	return a.patch(ctx, app, free)
}

func (a *applications) patch(ctx context.Context, before, after *v1alpha1.Application) error {
	err := a.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), fieldOwner)
	if local.IgnoreStale(err) != nil {
		return fmt.Errorf("write finalizers: %w", err)
	}
	return nil
}

// store writes the status if it says something new, and tells the user of another phase.
func (a *applications) store(ctx context.Context, app *v1alpha1.Application, status *v1alpha1.ApplicationStatus) error {
	if equality.Semantic.DeepEqual(status, &app.Status) {
		return nil
	}
	if err := local.ApplyStatus(ctx, a.Client, fieldOwner, app, status); err != nil {
		return err
	}
	a.tell(app, status)
	if status.Phase != app.Status.Phase && len(status.Conditions) > 0 && status.Conditions[0].Reason != v1alpha1.ReasonAuction {
		kind, said := corev1.EventTypeNormal, status.Conditions[0]
		if status.Phase == v1alpha1.ApplicationUnplaced {
			kind = corev1.EventTypeWarning
		}
		a.Events.Eventf(app, nil, kind, said.Reason, "Place", "%s", said.Message)
	}
	app.Status = *status
	return nil
}

// ask brings about the Requests that there are to be at peers, and returns at which there may be one then.
func (a *applications) ask(ctx context.Context, seen *scene, status *v1alpha1.ApplicationStatus) (asked []string, err error) {
	for _, peer := range status.AskedAt {
		wanted := seen.want(peer, status)
		mirror := a.follow(peer, requests)
		switch {
		case mirror == nil && introducerOf(status, peer) == "" && a.isForgotten(ctx, peer): // with all that we had there
		case mirror == nil:
			asked = append(asked, peer) // a change of the link asks for another look
		case wanted != nil:
			asked = append(asked, peer)
			err = errors.Join(err, a.send(ctx, seen, peer, wanted))
		case seen.at[peer] != nil:
			asked = append(asked, peer)
			err = errors.Join(err, a.release(ctx, peer, seen.at[peer]))
		}
	}
	return asked, err
}

func (a *applications) isForgotten(ctx context.Context, peer string) bool {
	found, err := local.Find(ctx, a.Client, client.ObjectKey{Name: peer}, &v1alpha1.Peer{})
	return err == nil && found == nil
}

// send creates the Request, or changes the one that is there.
func (a *applications) send(ctx context.Context, seen *scene, peer string, wanted *v1alpha1.Request) error {
	there := seen.at[peer]
	link, ok := a.Links.Get(peer)
	if !ok || there != nil && equality.Semantic.DeepEqual(there.Spec, wanted.Spec) {
		return nil
	}
	err := a.signRequest(ctx, peer, wanted)
	if errors.Is(err, trust.ErrStatementSize) {
		seen.refused[peer] = tooLarge
		return nil
	}
	if err != nil {
		return fmt.Errorf("sign the Request: %w", err)
	}
	wanted.Namespace = link.TenantNamespace()
	if there == nil {
		err = link.Client().Create(ctx, wanted)
	} else {
		err = link.Client().Patch(ctx, wanted, client.MergeFromWithOptions(there, client.MergeFromWithOptimisticLock{}))
	}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err): // by its quota, for instance
		seen.refused[peer] = "It does not take the Request: " + err.Error()
		return nil
	case local.IgnoreStale(err) != nil:
		return fmt.Errorf("ask %s for room: %w", peer, err)
	default:
		return nil
	}
}

// release gives back what was reserved.
func (a *applications) release(ctx context.Context, peer string, there *v1alpha1.Request) error {
	link, ok := a.Links.Get(peer)
	if !ok || !there.DeletionTimestamp.IsZero() {
		return nil
	}
	err := link.Client().Delete(ctx, there.DeepCopy(), client.Preconditions{UID: &there.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release the room at %s: %w", peer, err)
	}
	return nil
}

// again is how soon to look again if nothing that is watched changes.
func (s *scene) again(status *v1alpha1.ApplicationStatus) time.Duration {
	switch {
	case !s.app.DeletionTimestamp.IsZero():
		return v1alpha1.ReservationTime
	case s.awaitsOffers(status):
		return s.untilOffers(status)
	case status.Phase == v1alpha1.ApplicationPlaced:
		return min(livenessInterval, s.untilReplaced(status))
	case status.Phase == v1alpha1.ApplicationRequested:
		return answerTime
	}
	soon := lookAgain
	if left := s.timeLeft(); left != nil && *left > 0 {
		soon = min(soon, *left)
	}
	if status.Auction != nil {
		for _, at := range []time.Time{status.Auction.StartedAt.Add(newcomerPause), nextAuction(status.Auction)} {
			if at.After(s.now) {
				soon = min(soon, at.Sub(s.now))
			}
		}
	}
	return soon
}
