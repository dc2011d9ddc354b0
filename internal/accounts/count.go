// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const maxMessage = 1024

// count adds to our Accounts what was used until then. What they say is what was counted: a write whose answer was lost is not made again.
func (a *accountant) count(ctx context.Context, seen *books, until time.Time) error {
	if !seen.mayCount() {
		return nil
	}
	for _, account := range seen.stored {
		if stored := account.Own().CountedUntil; stored != nil {
			seen.meter.Commit(seen.peer.Name, stored.Time)
		}
	}
	prices, err := a.prices(ctx, seen)
	if err != nil {
		return err
	}
	for _, tally := range seen.meter.Tally(seen.peer.Name, until, prices) {
		account := seen.of(tally.Day)
		if err := tally.AddTo(account.Own()); err != nil {
			return fmt.Errorf("add to Account %s: %w", account.Name, err)
		}
	}
	for _, account := range seen.current() {
		follow(account.Own(), account.Peers(), until)
	}
	return nil
}

// follow has a count that was not added to end where the other side's does, so that they can be compared: nothing was used since.
func follow(own, other *v1alpha1.AccountCount, until time.Time) {
	behind := own.CountedUntil != nil && own.CountedUntil.Before(other.CountedUntil)
	if behind && !other.CountedUntil.After(until) {
		own.CountedUntil = other.CountedUntil.DeepCopy()
	}
}

// prices are those of the advertisement: of ours to the peer, or of the peer's to us.
func (a *accountant) prices(ctx context.Context, seen *books) (*v1alpha1.Prices, error) {
	list := &v1alpha1.AdvertisementList{}
	if err := a.Client.List(ctx, list, client.InNamespace(v1alpha1.TenantNamespace(seen.peer.Name)), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Advertisements: %w", err)
	}
	for i := range list.Items {
		if isOurs := list.Items[i].Name == a.ClusterID; isOurs == (seen.direction == v1alpha1.AccountLent) {
			return list.Items[i].Spec.Prices, nil
		}
	}
	return nil, nil
}

// compare has each Account say whether the two sides agree.
func (a *accountant) compare(seen *books) {
	for _, account := range seen.current() {
		compare := a.compareWithConsumer
		if seen.direction == v1alpha1.AccountBorrowed {
			compare = a.compareWithProvider
		}
		agreed := compare(seen, account)
		said := meta.FindStatusCondition(account.Status.Conditions, v1alpha1.ConditionAgreed)
		switch {
		case agreed == nil && said != nil: // as before
			continue
		case agreed == nil:
			agreed = &exchange.Agreement{
				Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending, Message: "The counts of the two sides do not end at the same time yet",
			}
		}
		for _, kind := range []string{v1alpha1.ConditionAgreed, v1alpha1.ConditionReady} {
			meta.SetStatusCondition(&account.Status.Conditions, metav1.Condition{
				Type: kind, Status: agreed.Status, Reason: agreed.Reason, Message: sanitize.Text(agreed.Message, maxMessage),
				LastTransitionTime: metav1.NewTime(seen.now),
			})
		}
	}
}

// compareWithConsumer returns nil if nothing new can be said.
func (a *accountant) compareWithConsumer(seen *books, account *v1alpha1.Account) *exchange.Agreement {
	if agreed := a.unsigned(seen, account, &account.Spec.AccountCount); agreed != nil {
		return agreed
	}
	return exchange.CompareCounts(&account.Spec.AccountCount, &account.Status.AccountCount, account.Day(), a.Period)
}

// compareWithProvider takes over what the provider has counted, if it is a count that it has signed. It returns nil if nothing new can be said.
func (a *accountant) compareWithProvider(seen *books, account *v1alpha1.Account) *exchange.Agreement {
	unknown := func(reason, message string) *exchange.Agreement {
		return &exchange.Agreement{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
	}
	isToday := account.Day().Add(day).After(seen.now)
	switch {
	case !seen.peer.Protocol().Accounts:
		return unknown(v1alpha1.ReasonNotCounted, "A cluster without Hanse counts nothing: what this cluster has counted stands alone")
	case isToday && (seen.state == peers.Cut || seen.state == peers.Unlinked):
		return unknown(v1alpha1.ReasonUnreachable, "The provider does not answer: what it counts, and what has ended there, is known when it does")
	}
	theirs, err := seen.theirs(account)
	switch {
	case err != nil:
		return unknown(v1alpha1.ReasonNotCounted, "The provider shows no Accounts: it may run an older version of Hanse")
	case theirs == nil:
		return nil
	}
	if agreed := a.unsigned(seen, account, &theirs.Status.AccountCount); agreed != nil {
		return agreed
	}
	if count := &theirs.Status.AccountCount; count.CountedUntil != nil && exchange.CheckCount(count, account.Day()) == nil {
		account.Status.AccountCount = *count
	}
	return exchange.CompareCounts(&account.Spec.AccountCount, &theirs.Status.AccountCount, account.Day(), a.Period)
}

// store writes what has changed, and tells of counts that differ.
func (a *accountant) store(ctx context.Context, seen *books) error {
	for name, next := range seen.next {
		before := seen.stored[name]
		if before == nil {
			before = &v1alpha1.Account{ObjectMeta: *next.ObjectMeta.DeepCopy()}
		}
		if err := a.write(ctx, before, next); err != nil {
			return err
		}
		said, was := agreedIn(next), agreedIn(before)
		if said != nil && said.Status == metav1.ConditionFalse && (was == nil || was.Status != said.Status) {
			a.Events.Eventf(next, nil, corev1.EventTypeWarning, said.Reason, "Compare", "%s", said.Message)
		}
	}
	return nil
}

func agreedIn(account *v1alpha1.Account) *metav1.Condition {
	return meta.FindStatusCondition(account.Status.Conditions, v1alpha1.ConditionAgreed)
}

// write writes the parts of the Account that have changed, if it is as it was read.
func (a *accountant) write(ctx context.Context, before, next *v1alpha1.Account) error {
	if next.UID == "" && next.Own().CountedUntil == nil {
		return nil // nothing to tell
	}
	status := next.Status
	isWritten, err := a.writeSpec(ctx, before, next)
	if err != nil {
		return fmt.Errorf("write Account %s: %w", next.Name, err)
	}
	if isWritten { // and next is what was answered
		before, next.Status = next.DeepCopy(), status
	}
	if equality.Semantic.DeepEqual(before.Status, next.Status) {
		return nil
	}
	from := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := a.Client.Status().Patch(ctx, next, from, fieldOwner); err != nil {
		return fmt.Errorf("write the status of Account %s: %w", next.Name, err)
	}
	return nil
}

// writeSpec creates the Account, or writes what we have borrowed: of what was lent the spec is the peer's.
func (a *accountant) writeSpec(ctx context.Context, before, next *v1alpha1.Account) (isWritten bool, err error) {
	switch {
	case next.UID == "":
		return true, a.Client.Create(ctx, next, fieldOwner)
	case next.Direction() == v1alpha1.AccountBorrowed && !equality.Semantic.DeepEqual(before.Spec, next.Spec):
		from := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return true, a.Client.Patch(ctx, next, from, fieldOwner)
	default:
		return false, nil
	}
}
