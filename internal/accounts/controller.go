// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
)

// books are what there is of one peer in one direction.
type books struct {
	direction v1alpha1.AccountDirection
	peer      *v1alpha1.Peer
	meter     *exchange.Meter
	now       time.Time
	// stored are our Accounts as they are, and next as they are to be: name → Account.
	stored, next map[string]*v1alpha1.Account
	link         *peers.Link // to a provider; nil if there is none
	state        peers.State
}

// Reconcile counts what is due, compares it, and tells the peer.
func (a *accountant) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	seen, err := a.observe(ctx, v1alpha1.AccountDirection(request.Namespace), request.Name)
	if err != nil || seen == nil {
		return reconcile.Result{}, err
	}
	until := a.counted(request.Name)
	if err := a.count(ctx, seen, until); err != nil {
		return reconcile.Result{}, err
	}
	if err := a.sign(seen); err != nil {
		return reconcile.Result{}, err
	}
	a.compare(seen)
	err = errors.Join(a.store(ctx, seen), a.claim(ctx, seen), a.cleanUp(ctx, seen))
	if err != nil {
		return a.later(err)
	}
	if seen.mayCount() {
		seen.meter.Commit(request.Name, until)
	}
	return reconcile.Result{RequeueAfter: a.again(seen)}, nil
}

// later has what is behind the API server, or not answered for now, tried again.
func (a *accountant) later(err error) (reconcile.Result, error) {
	var busy *peers.BusyError
	switch {
	case errors.As(err, &busy):
		return reconcile.Result{RequeueAfter: busy.After}, nil
	case apierrors.IsConflict(err) || local.IsEnding(err):
		return reconcile.Result{RequeueAfter: a.answerDelay()}, nil
	default:
		return reconcile.Result{}, err
	}
}

// observe returns nil if the peer is gone.
func (a *accountant) observe(ctx context.Context, direction v1alpha1.AccountDirection, name string) (*books, error) {
	meter := a.meters[direction]
	if meter == nil {
		return nil, nil
	}
	peer, err := local.Find(ctx, a.Client, client.ObjectKey{Name: name}, &v1alpha1.Peer{})
	if err != nil {
		return nil, err
	}
	if peer == nil {
		meter.Forget(name)
		return nil, nil
	}
	seen := &books{direction: direction, peer: peer, meter: meter, now: a.Clock.Now().UTC(), next: map[string]*v1alpha1.Account{}}
	if seen.stored, err = a.own(ctx, direction, name); err != nil {
		return nil, err
	}
	if direction == v1alpha1.AccountBorrowed {
		seen.link, _ = a.Links.Get(name)
		seen.state = a.Links.State(name)
	}
	a.open(ctx, direction, name)
	return seen, nil
}

// own are our Accounts of the peer: name → Account. The caller must not change them.
func (a *accountant) own(ctx context.Context, direction v1alpha1.AccountDirection, peer string) (map[string]*v1alpha1.Account, error) {
	list := &v1alpha1.AccountList{}
	if err := a.Client.List(ctx, list, client.InNamespace(v1alpha1.TenantNamespace(peer)), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Accounts: %w", err)
	}
	own := map[string]*v1alpha1.Account{}
	for i := range list.Items {
		if account := &list.Items[i]; account.Direction() == direction && account.DeletionTimestamp.IsZero() {
			own[account.Name] = account
		}
	}
	return own, nil
}

// of is the Account of the day as it is to be.
func (b *books) of(day time.Time) *v1alpha1.Account {
	name := v1alpha1.AccountName(b.direction, day)
	if b.next[name] == nil {
		b.next[name] = &v1alpha1.Account{}
		if stored := b.stored[name]; stored != nil {
			b.next[name] = stored.DeepCopy()
		}
		b.next[name].Namespace, b.next[name].Name = v1alpha1.TenantNamespace(b.peer.Name), name
	}
	return b.next[name]
}

// current are the Accounts of today and yesterday, as they are to be. Earlier ones are closed: nobody adds to them, and what a peer
// writes into them is not looked at.
func (b *books) current() []*v1alpha1.Account {
	for name, stored := range b.stored {
		if b.next[name] == nil && stored.Day().After(b.now.Add(-2*day)) {
			b.of(stored.Day())
		}
	}
	var found []*v1alpha1.Account
	for _, name := range slices.Sorted(maps.Keys(b.next)) {
		if b.next[name].Day().After(b.now.Add(-2 * day)) {
			found = append(found, b.next[name])
		}
	}
	return found
}

// mayCount reports whether what is known of the pods is as it is now. While a provider cannot be asked, what has ended there is not
// known: it is counted when the provider answers again.
func (b *books) mayCount() bool {
	return b.direction == v1alpha1.AccountLent || b.state == peers.Up || !b.peer.Protocol().Accounts
}

// again is how soon to look again if nothing changes.
func (a *accountant) again(b *books) time.Duration {
	switch {
	case b.meter.Counts(b.peer.Name) || len(b.current()) > 0:
		return a.untilNext(b.peer.Name)
	case len(b.stored) > 0:
		return cleanUpEvery
	default:
		return 0
	}
}

// cleanUp deletes Accounts that are too old.
func (a *accountant) cleanUp(ctx context.Context, seen *books) error {
	for _, account := range seen.stored {
		if !account.Day().Before(seen.now.Add(-v1alpha1.AccountRetention)) {
			continue
		}
		err := a.Client.Delete(ctx, account.DeepCopy(), client.Preconditions{UID: &account.UID})
		if local.IgnoreStale(err) != nil {
			return fmt.Errorf("delete Account %s: %w", account.Name, err)
		}
	}
	return nil
}
